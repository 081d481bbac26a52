"""The format of Hermes, Qwen2.5 and Qwen3: JSON calls between `<tool_call>` and `</tool_call>`."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.gateway.parsing.formats import grammar
from paceline.gateway.parsing.formats.call_format import CallFormat, CallParser
from paceline.gateway.parsing.formats.json_call_reader import JsonCallReader
from paceline.gateway.parsing.text_reader import Reading
from paceline.gateway.parsing.tools import Tool

_BEGIN, _END = "<tool_call>", "</tool_call>"
_FENCE, _FENCE_END = "```json", "```"
_OTHER_FORMATS = ("<function=", "<arg_key>", "<tool_sep>")
"""Parts of calls in templates that use `<tool_call>` for another format."""


class HermesFormat(CallFormat):
    """Each call is `<tool_call>`, a line with a JSON object, and `</tool_call>`."""

    name = "hermes"

    def is_format_of(self, template: str) -> bool:
        """Returns whether the template has the marker on a line of its own, and no sign of another format."""
        has_marker_line = any(_BEGIN + line_break in template for line_break in ("\n", "\\n"))
        return has_marker_line and "arguments" in template and not any(one in template for one in _OTHER_FORMATS)

    def parser(self, tools: Sequence[Tool], *, needs_markers: bool = False) -> CallParser:
        """Returns a parser for one answer."""
        return _HermesReader(tools, needs_markers=needs_markers)

    def grammar(self, tools: Sequence[Tool], *, is_required: bool, is_parallel: bool) -> str:
        """Returns a grammar for whole answers."""
        call = f"{grammar.text(chr(10))} ({grammar.json_calls(tools, 'arguments')}) {grammar.text(chr(10) + _END)}"
        return grammar.marked_calls(_BEGIN, call, chr(10), is_required=is_required, is_parallel=is_parallel)


class _HermesReader(JsonCallReader):
    """Also reads calls without the markers, alone or in a fence, because small models often forget the markers. Such a
    call must begin with its name, so that other JSON is not held back."""

    def __init__(self, tools: Sequence[Tool], *, needs_markers: bool) -> None:
        super().__init__(tools)
        self._begins = (_BEGIN,) if needs_markers else (_BEGIN, _FENCE, "{")

    def _run(self) -> Reading[None]:
        while True:
            marker = yield from self._content_until(self._begins)
            if marker == "{":
                self._unread(marker)
            yield from self._attempt(self._call() if marker == _BEGIN else self._bare_call(marker == _FENCE))

    def _call(self) -> Reading[None]:
        """Reads a call. Its end marker may be missing."""
        yield from self._json_call()
        yield from self._peek()
        yield from self._one_of((_END,))

    def _bare_call(self, is_fenced: bool) -> Reading[None]:
        """Reads a call without markers. After a fence, the end of the fence may be missing."""
        yield from self._peek()
        num_held = len(self._held)
        yield from self._expect("{")
        yield from self._peek()
        yield from self._expect('"name"')
        self._unread("".join(self._held[num_held:]))
        yield from self._json_call()
        if is_fenced:
            yield from self._peek()
            yield from self._one_of((_FENCE_END,))
