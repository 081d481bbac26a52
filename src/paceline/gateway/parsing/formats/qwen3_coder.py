"""The format of Qwen3-Coder: XML calls whose parameters are raw text or JSON, depending on the tool's schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from paceline.gateway.parsing.formats import grammar
from paceline.gateway.parsing.formats.call_format import CallFormat, CallParser
from paceline.gateway.parsing.formats.call_reader import CallReader
from paceline.gateway.parsing.formats.parameter_types import (
    STRING_ONLY,
    fixed_texts,
    json_text,
    parameter_schemas,
    types_of,
)
from paceline.gateway.parsing.text_reader import Reading, TextEndedError
from paceline.gateway.parsing.tools import Tool

_BEGIN, _END = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"


class Qwen3CoderFormat(CallFormat):
    """Each call is `<tool_call>`, `<function=name>`, and its parameters, each between tags on lines of their own.

    A value ends at the first `</parameter>`. The grammar enforces types, enums and required parameters, in the order
    of the schema, and other limits for values that are JSON. Strings may be any text, for strict tools too.
    """

    name = "qwen3-coder"

    def is_format_of(self, template: str) -> bool:
        """Returns whether the template has the marker and the tags of functions and parameters."""
        return all(tag in template for tag in (_BEGIN, _FUNCTION, _PARAMETER))

    def parser(self, tools: Sequence[Tool], *, needs_markers: bool = False) -> CallParser:
        """Returns a parser for one answer."""
        return _Qwen3CoderReader(tools)

    def grammar(self, tools: Sequence[Tool], *, is_required: bool, is_parallel: bool) -> str:
        """Returns a grammar for whole answers."""
        call = f"{grammar.text(chr(10))} ({' | '.join(map(_function, tools))}) {grammar.text(chr(10) + _END)}"
        answer = grammar.marked_calls(_BEGIN, call, chr(10), is_required=is_required, is_parallel=is_parallel)
        return answer + f"raw[lazy]: /(.|\\n)*/ {grammar.text(_PARAMETER_END)}\n"


def _function(tool: Tool) -> str:
    required = (tool.parameters or {}).get("required", [])
    parameters = [
        f"({_parameter(name, schema, is_strict=tool.is_strict)}){'' if name in required else '?'}"
        for name, schema in parameter_schemas(tool.parameters).items()
    ]
    head, end = grammar.text(f"{_FUNCTION}{tool.name}>\n"), grammar.text(_FUNCTION_END)
    return " ".join([head, *parameters, end])


def _parameter(name: str, schema: dict[str, Any], *, is_strict: bool) -> str:
    end = grammar.text(f"\n{_PARAMETER_END}\n")
    texts = fixed_texts(schema)
    if texts is not None:
        value = f"({' | '.join(map(grammar.text, texts))}) {end}"
    elif types_of(schema) and "string" not in types_of(schema):
        value = f"{grammar.json_value(schema, is_strict=is_strict)} {end}"
    else:
        value = r'raw "\n"'
    return f"{grammar.text(f'{_PARAMETER}{name}>' + chr(10))} {value}"


class _Qwen3CoderReader(CallReader):
    """Accepts calls whose `<tool_call>` is missing, because these models sometimes leave it out."""

    def _run(self) -> Reading[None]:
        while True:
            marker = yield from self._content_until((_BEGIN, _FUNCTION))
            yield from self._attempt(self._call(is_function_next=marker == _BEGIN))

    def _call(self, *, is_function_next: bool) -> Reading[None]:
        if is_function_next:
            yield from self._peek()
            yield from self._expect(_FUNCTION)
        name = yield from self._known_name(">")
        yield from self._next()
        self._begin_call(name)
        yield from self._parameters(self._tools[name])
        yield from self._peek()
        yield from self._one_of((_END,))

    def _parameters(self, tool: Tool) -> Reading[None]:
        """Reads parameters up to the end of the function, or to text that is no parameter."""
        schemas = parameter_schemas(tool.parameters)
        before = "{"
        while True:
            yield from self._peek()
            if (yield from self._one_of((_PARAMETER, _FUNCTION_END))) != _PARAMETER:
                break
            characters: list[str] = []
            yield from self._until((">",), characters.append)
            name = "".join(characters)
            self._give_arguments(f"{before}{json.dumps(name, ensure_ascii=False)}: ")
            yield from self._parameter_value(types_of(schemas.get(name, {})))
            before = ", "
        self._give_arguments("{}" if before == "{" else "}")

    def _parameter_value(self, types: frozenset[str]) -> Reading[None]:
        """Reads a value without the line breaks at its ends, and gives it out as JSON.

        Values that can only be strings are given out as they arrive, others when they are complete.
        """
        yield from self._one_of(("\n",))
        ends = ("\n" + _PARAMETER_END, _PARAMETER_END)
        if types == STRING_ONLY:
            self._give_arguments('"')
            yield from self._until(ends, lambda one: self._give_arguments(json.dumps(one, ensure_ascii=False)[1:-1]))
            self._give_arguments('"')
            return
        characters: list[str] = []
        try:
            yield from self._until(ends, characters.append)
        except TextEndedError:
            self._give_arguments("".join(characters))
            raise
        self._give_arguments(json_text("".join(characters), types))
