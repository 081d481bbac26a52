"""The format of Llama 3.1 to 3.3: JSON calls with "parameters" as the whole answer, or after `<|python_tag|>`."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.gateway.parsing.formats import grammar
from paceline.gateway.parsing.formats.call_format import CallFormat, CallParser
from paceline.gateway.parsing.formats.json_call_reader import JsonCallReader
from paceline.gateway.parsing.text_reader import Reading
from paceline.gateway.parsing.tools import Tool

_TAG = "<|python_tag|>"


class Llama3Format(CallFormat):
    """A call is a JSON object. Semicolons or line breaks stand between several calls.

    Without the tag, only an answer that begins with `{` can be a call. The grammar without `is_required` therefore
    lets no other text begin with `{`.
    """

    name = "llama3"

    def is_format_of(self, template: str) -> bool:
        """Returns whether the template has the tag, or Llama's headers and calls with "parameters"."""
        is_llama_call = "<|start_header_id|>" in template and '"parameters": ' in template
        return (_TAG in template or is_llama_call) and "<function=" not in template

    def parser(self, tools: Sequence[Tool], *, needs_markers: bool = False) -> CallParser:
        """Returns a parser for one answer."""
        return _Llama3Reader(tools)

    def grammar(self, tools: Sequence[Tool], *, is_required: bool, is_parallel: bool) -> str:
        """Returns a grammar for whole answers."""
        more = r"(/; ?|\n/ call)*" if is_parallel else ""
        rules = [f"calls: call {more}", f"call: {grammar.json_calls(tools, 'parameters')}"]
        if is_required:
            return grammar.lines(f"start: {grammar.text(_TAG)}? calls", *rules)
        return grammar.lines(
            "start: TEXT | begin? calls",
            f"begin[lazy]: TEXT {grammar.text(_TAG)}",
            r"TEXT: /[ \t\r\n]*([^{ \t\r\n](.|\n)*)?/",
            *rules,
        )


class _Llama3Reader(JsonCallReader):
    def _run(self) -> Reading[None]:
        if (yield from self._peek()) == "{":
            yield from self._attempt(self._calls())
        while True:
            yield from self._content_until((_TAG,))
            yield from self._attempt(self._calls())

    def _calls(self) -> Reading[None]:
        following = "{"
        while following == "{":
            yield from self._json_call()
            following = yield from self._peek()
            if following == ";":
                yield from self._next()
                following = yield from self._peek()
