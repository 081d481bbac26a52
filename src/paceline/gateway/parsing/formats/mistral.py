"""The two formats of Mistral: `[TOOL_CALLS] [{"name": ..., "arguments": ...}]` and `[TOOL_CALLS]name[ARGS]{...}`."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.gateway.parsing.formats import grammar
from paceline.gateway.parsing.formats.call_format import CallFormat, CallParser
from paceline.gateway.parsing.formats.json_call_reader import JsonCallReader
from paceline.gateway.parsing.text_reader import Reading
from paceline.gateway.parsing.tools import Tool

_BEGIN, _ARGUMENTS, _ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"


class MistralFormat(CallFormat):
    """One marker and a JSON list of calls, or one marker for each call with its name and arguments.

    The newer form may have an id between name and arguments; the parser drops it. The grammar allows both forms, so
    that each model writes the one that it knows.
    """

    name = "mistral"

    def is_format_of(self, template: str) -> bool:
        """Returns whether the template has the marker."""
        return _BEGIN in template

    def parser(self, tools: Sequence[Tool], *, needs_markers: bool = False) -> CallParser:
        """Returns a parser for one answer."""
        return _MistralReader(tools)

    def grammar(self, tools: Sequence[Tool], *, is_required: bool, is_parallel: bool) -> str:
        """Returns a grammar for whole answers."""
        begin = grammar.text(_BEGIN)
        more_objects, more_named = ('(", " object)*', f"({begin} named)*") if is_parallel else ("", "")
        rules = [
            f"calls: list | named {more_named}",
            f'list: " "? "[" object {more_objects} "]"',
            f"object: {grammar.json_calls(tools, 'arguments')}",
            f"named: {' | '.join(map(_named_call, tools))}",
            f"id: {grammar.text(_ID)} /[A-Za-z0-9]{{9}}/",
        ]
        if is_required:
            return grammar.lines(f"start: {begin} calls", *rules)
        return grammar.lines("start: TEXT | begin calls", *grammar.free_text(_BEGIN), *rules)


def _named_call(tool: Tool) -> str:
    return f"{grammar.text(tool.name)} id? {grammar.text(_ARGUMENTS)} {grammar.arguments(tool)}"


class _MistralReader(JsonCallReader):
    def _run(self) -> Reading[None]:
        while True:
            yield from self._content_until((_BEGIN,))
            yield from self._attempt(self._calls())

    def _calls(self) -> Reading[None]:
        if (yield from self._peek()) == "[":
            yield from self._list()
        else:
            yield from self._named_call()

    def _list(self) -> Reading[None]:
        """Reads a list of calls. Its end may be missing."""
        following = ","
        yield from self._expect("[")
        while following == ",":
            yield from self._json_call()
            following = yield from self._peek()
            if following in ",]":
                yield from self._next()

    def _named_call(self) -> Reading[None]:
        name = yield from self._known_name("[{")
        marker = yield from self._one_of((_ARGUMENTS, _ID, "{"))
        if marker is None:
            yield from self._expect(_ARGUMENTS)
        if marker == "{":
            self._unread(marker)
        self._begin_call(name)
        if marker == _ID:
            yield from self._until((_ARGUMENTS,), lambda text: None)
        yield from self._value(self._give_arguments)
