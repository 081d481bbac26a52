"""Tests what the parsers of all formats give out: calls, content, cut-off calls, and text that looks like calls."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.gateway.parsing.events import CallArguments, CallBegin, Content, Part
from paceline.gateway.parsing.tools import Tool
from tests.gateway.parsing.parsed import TOOLS, calls_of, format_named, parsed_pieces

FORMATS = ("hermes", "qwen3-coder", "llama3", "mistral")
NESTED = '{"city": "a } ] \\" \\\\", "options": {"x": [1, {"y": "{"}]}}'


def _call(index: int, name: str, arguments: str) -> list[Part]:
    return [CallBegin(index, name), CallArguments(index, arguments)]


def _hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def _llama(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "parameters": {arguments}}}'


def _function(name: str, *parameters: tuple[str, str]) -> str:
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", _hermes("get_weather", NESTED)),
        ("llama3", _llama("get_weather", NESTED)),
        ("llama3", "\n" + _hermes("get_weather", NESTED)[len("<tool_call>\n") : -len("\n</tool_call>")]),
        ("llama3", "<|python_tag|>" + _llama("get_weather", NESTED)),
        ("mistral", f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {NESTED}, "id": "abcdefghi"}}]'),
        ("mistral", f"[TOOL_CALLS]get_weather[ARGS]{NESTED}"),
        ("mistral", f"[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{NESTED}"),
        ("mistral", f"[TOOL_CALLS]get_weather{NESTED}"),
        ("hermes", f'<tool_call>{{"arguments":{NESTED},"name":"get_weather"}}</tool_call>'),
        ("hermes", f'<tool_call>{{"arguments":{NESTED},"id":7,"name":"get_weather"}}'),
    ],
)
def test_arguments_are_given_out_as_they_are_written(name: str, text: str) -> None:
    assert calls_of(name, text) == _call(0, "get_weather", NESTED)
    assert json.loads(NESTED)["options"] == {"x": [1, {"y": "{"}]}


@pytest.mark.parametrize(
    "text",
    [
        _llama("get_weather", NESTED),
        "\n" + _hermes("get_weather", NESTED)[len("<tool_call>\n") : -len("\n</tool_call>")] + "\n",
        f'{{\n  "name": "get_weather",\n  "arguments": {NESTED}\n}}',
        f'```json\n{{\n  "name": "get_weather",\n  "arguments": {NESTED}\n}}\n```\n',
        f'```json\n{{"name": "get_weather", "arguments": {NESTED}}}',
    ],
)
def test_hermes_calls_without_markers_are_calls(text: str) -> None:
    assert calls_of("hermes", text) == _call(0, "get_weather", NESTED)
    assert calls_of("hermes", "Let me see.\n" + text)[1:] == _call(0, "get_weather", NESTED)


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Köln", "name": "get_weather"}',
        '```json\n{"city": 1}\n```',
        '{"name": "Köln", "arguments": 1}',
        "int main() {\n  return 0;\n}\n",
        'a {} b { "name } ```json',
    ],
)
def test_other_json_and_code_stays_content(text: str) -> None:
    assert calls_of("hermes", text) == [Content(text)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", _hermes("get_weather", '{"city": "Köln 🌧"}') + "\n" + _hermes("get", "{}") + "\n"),
        ("hermes", (_hermes("get_weather", '{"city": "Köln 🌧"}') + _hermes("get", "{}")).replace("</tool_call>", "")),
        ("qwen3-coder", _function("get_weather", ("city", "Köln 🌧")) + "\n" + _function("get") + "\n"),
        ("llama3", _llama("get_weather", '{"city": "Köln 🌧"}') + "; " + _llama("get", "{}")),
        ("llama3", _llama("get_weather", '{"city": "Köln 🌧"}') + "\n" + _llama("get", "{}")),
        ("mistral", '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Köln 🌧"}}, {"name": "get"}]'),
        ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Köln 🌧"}[TOOL_CALLS]get[ARGS]{}'),
    ],
)
def test_parallel_calls_are_counted_and_white_space_around_them_is_dropped(name: str, text: str) -> None:
    assert calls_of(name, text) == [*_call(0, "get_weather", '{"city": "Köln 🌧"}'), *_call(1, "get", "{}")]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("hermes", _hermes("get", "{}")),
        ("qwen3-coder", _function("get")),
        ("llama3", "<|python_tag|>" + _llama("get", "{}")),
        ("mistral", "[TOOL_CALLS]get[ARGS]{}"),
    ],
)
def test_text_around_a_call_is_content(name: str, call: str) -> None:
    assert calls_of(name, f"I look. <\n{call}\n Done.\n") == [
        Content("I look. <\n"),
        *_call(0, "get", "{}"),
        Content("Done.\n"),
    ]
    assert calls_of(name, f"\n\n{call}") == _call(0, "get", "{}")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("text", ["", " \n", "Hi <b> [1] ünï 🌧 \n", "<tool", "x <|python_ta [TOOL_CALL <function"])
def test_text_without_a_call_is_content(name: str, text: str) -> None:
    assert calls_of(name, text) == ([Content(text)] if text else [])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", _hermes("nothing", '{"a": 1}') + " x"),
        ("hermes", '<tool_call>\n{"arguments": {"a": 1}, "name": "nothing"}\n</tool_call>'),
        ("hermes", '<tool_call>\n{"arguments": {}}\n</tool_call>'),
        ("hermes", "<tool_call> get() </tool_call>"),
        ("hermes", '<tool_call>{"name": 3}'),
        ("hermes", '<tool_call>{"name": "\\x"}'),
        ("hermes", '<tool_call>{"other": }'),
        ("hermes", '<tool_call>{"na'),
        ("llama3", _llama("nothing", '{"a": 1}')),
        ("llama3", '{"a": [1, 2]}\n'),
        ("llama3", 'Use {"name": "get", "parameters": {}}'),
        ("llama3", "<|python_tag|>print(1)"),
        ("mistral", '[TOOL_CALLS] [{"name": "nothing", "arguments": {}}]'),
        ("mistral", "[TOOL_CALLS]nothing[ARGS]{}"),
        ("mistral", "[TOOL_CALLS]get[ARG]{}"),
        ("mistral", "[TOOL_CALLS]ge"),
        ("qwen3-coder", _function("nothing", ("a", "1"))),
        ("qwen3-coder", _hermes("get", "{}")),
        ("qwen3-coder", "<function=ge"),
    ],
)
def test_what_is_no_call_of_a_known_tool_is_content(name: str, text: str) -> None:
    assert calls_of(name, text) == [Content(text)]


def test_a_call_after_one_that_is_no_call_is_found() -> None:
    assert calls_of("hermes", "<tool_call>" + _hermes("get", "{}")) == [
        Content("<tool_call>"),
        *_call(0, "get", "{}"),
    ]
    assert calls_of("llama3", _llama("get", "{}") + '; {"name": "nothing"}') == [
        *_call(0, "get", "{}"),
        Content('; {"name": "nothing"}'),
    ]


@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        ("hermes", '<tool_call>\n{"name": "get_weather"', None),
        ("hermes", '<tool_call>\n{"name": "get_weather", "arg', None),
        ("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "K\\', '{"city": "K\\'),
        ("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "K"}}\n</tool', '{"city": "K"}'),
        ("llama3", '{"name": "get_weather", "parameters": {"city": "K', '{"city": "K'),
        ("llama3", '{"name": "get_weather", "parameters": {"city": "K"}};', '{"city": "K"}'),
        ("mistral", "[TOOL_CALLS]get_weather[ARGS]", None),
        ("mistral", "[TOOL_CALLS]get_weather[CALL_ID]abc", None),
        ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "K', '{"city": "K'),
        ("mistral", '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "K"}},', '{"city": "K"}'),
        ("qwen3-coder", "<tool_call>\n<function=get_weather>\n<param", None),
        ("qwen3-coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nK", '{"city": "K'),
        ("qwen3-coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nK\n</parameter>\n", '{"city": "K"'),
        ("qwen3-coder", "<tool_call>\n<function=get_weather>\n<parameter=days>\n12", '{"days": 12'),
    ],
)
def test_a_cut_off_call_gives_what_there_is(name: str, text: str, arguments: str | None) -> None:
    expected: list[Part] = [CallBegin(0, "get_weather")]
    assert calls_of(name, text) == [*expected, *([CallArguments(0, arguments)] if arguments is not None else [])]


def test_a_call_that_lacks_its_last_brace_is_complete() -> None:
    text = '<tool_call>\n{"name": "get", "arguments": {"a": 1}\n</tool_call>\n' + _hermes("get", "{}")
    assert calls_of("hermes", text) == [*_call(0, "get", '{"a": 1}'), *_call(1, "get", "{}")]


def test_text_and_arguments_are_given_out_at_once() -> None:
    parser = format_named("hermes").parser(TOOLS)
    assert parser.push("Hello <tool") == [Content("Hello ")]
    assert parser.push("box> ") == [Content("<toolbox> ")]
    assert parser.push('<tool_call>{"name": "get"') == [CallBegin(0, "get")]
    assert parser.push(', "arguments": {"ci') == [CallArguments(0, '{"ci')]
    assert parser.push('ty": "K') == [CallArguments(0, 'ty": "K')]
    assert parser.push('"}}</tool_call>') == [CallArguments(0, '"}')]
    assert parser.push(" ") == parser.push("") == parser.finish() == []


def test_xml_parameters_become_json_by_their_types() -> None:
    text = _function(
        "get_weather",
        ("city", 'a "quote"\n\n<b>\t\\n</b>\n'),
        ("days", "3"),
        ("unit", "F"),
        ("options", '{"x": [1,\n"</"]}'),
        ("unknown", "True"),
        ("other", "no json"),
    )
    (begin, arguments) = calls_of("qwen3-coder", text)
    assert begin == CallBegin(0, "get_weather")
    assert isinstance(arguments, CallArguments)
    assert json.loads(arguments.text) == {
        "city": 'a "quote"\n\n<b>\t\\n</b>\n',
        "days": 3,
        "unit": "F",
        "options": {"x": [1, "</"]},
        "unknown": True,
        "other": "no json",
    }


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": ["string", "null"]}, "None", None),
        ({"type": ["string", "null"]}, "12", "12"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "12", 12),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "[1]", "[1]"),
        ({"anyOf": [{"type": "string"}, {"description": "anything"}]}, "[1]", [1]),
        ({"type": "number"}, " 1.5 ", 1.5),
        ({"type": "boolean"}, "False", False),
        ({"type": "array"}, "no json", "no json"),
        ({"const": "7"}, "7", "7"),
        ({"enum": [7, "x"]}, "7", 7),
        ({"$ref": "#/$defs/Text"}, "7", "7"),
        ({"$ref": "#/$defs/Missing"}, "7", 7),
        (True, "7", 7),
    ],
)
def test_xml_values_have_the_types_of_the_schema(schema: object, text: str, expected: object) -> None:
    parameters = {"properties": {"a": schema}, "$defs": {"Text": {"type": "string"}}}
    parser = format_named("qwen3-coder").parser([Tool("f", None, parameters, False)])
    parts = parsed_pieces(parser, [_function("f", ("a", text))])
    assert parts == _call(0, "f", json.dumps({"a": expected}))


def test_xml_strings_are_given_out_as_they_arrive() -> None:
    parser = format_named("qwen3-coder").parser(TOOLS)
    parser.push("<function=get_weather>\n<parameter=city>\n")
    assert parser.push("one\ntwo\n</para") == [CallArguments(0, "one\\ntwo")]
    assert parser.push("meter>\n</function>") == [CallArguments(0, '"}')]


def test_an_xml_function_that_does_not_end_is_closed_where_other_text_begins() -> None:
    text = "<tool_call>\n<function=get_weather>\n<parameter=city>K</parameter>\n</tool_call>"
    assert calls_of("qwen3-coder", text) == _call(0, "get_weather", '{"city": "K"}')


PIECES = st.sampled_from(
    [
        "<tool_call>", "</tool_call>", "\n", " ", "{", "}", "[", "]", ",", ";", '"', "\\", ":", '{"name": ', '"get"',
        '"get_weather"', '"arguments": ', '"parameters": ', '{"city": "K"}', "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]",
        "[CALL_ID]", "get", "<function=", ">", "<parameter=", "city>", "</parameter>", "</function>", "<", "3", "é🌧",
    ]
)  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
@settings(deadline=None, max_examples=50)
@given(pieces=st.lists(PIECES, max_size=10))
def test_the_result_does_not_depend_on_the_places_of_splits(name: str, pieces: list[str]) -> None:
    calls_of(name, "".join(pieces))


@pytest.mark.parametrize("name", FORMATS)
@settings(deadline=None)
@given(text=st.text(), number=st.integers(1, 5))
def test_any_text_without_markers_comes_back(name: str, text: str, number: int) -> None:
    pieces = [text[start : start + number] for start in range(0, len(text), number)]
    assert parsed_pieces(format_named(name).parser(TOOLS), pieces) == ([Content(text)] if text else [])
