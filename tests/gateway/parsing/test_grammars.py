"""Tests the grammars with llguidance, byte by byte: right answers are accepted, wrong ones are refused in time."""

from __future__ import annotations

import json

import pytest
from llguidance import LLMatcher

from paceline.constraints.compile_worker import byte_tokenizer
from paceline.gateway.parsing.events import CallArguments
from paceline.gateway.parsing.tools import Tool
from tests.gateway.parsing.parsed import TOOLS, format_named, parsed_pieces

FORMATS = ("hermes", "qwen3-coder", "llama3", "mistral-list", "mistral")
MODES = [(True, True), (True, False), (False, True), (False, False)]
ARGUMENTS = '{"city": "K ü {\\"}", "days": 3, "unit": "C", "options": {"a": [1, {}]}}'
XML_ARGUMENTS = (
    '<parameter=city>\nK ü {"}\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=unit>\nC\n</parameter>\n'
    '<parameter=options>\n{"a": [1, {}]}\n</parameter>\n'
)


def _grammar(name: str, is_required: bool, is_parallel: bool, tools: tuple[Tool, ...] = TOOLS) -> str:
    form = format_named(name.removesuffix("-list"))
    return form.grammar(tools, is_required=is_required, is_parallel=is_parallel)


def _accepted(grammar: str, text: str) -> tuple[str, bool]:
    """Returns the beginning of the text that the grammar accepts, and whether the answer may end there."""
    matcher = LLMatcher(byte_tokenizer(), grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    data = text.encode()
    number = next((place for place, byte in enumerate(data) if not matcher.try_consume_tokens([byte])), len(data))
    return data[:number].decode(), matcher.is_accepting()


def _call(name: str, tool: str = "get_weather", arguments: str = ARGUMENTS, xml: str = XML_ARGUMENTS) -> str:
    return {
        "hermes": f'<tool_call>\n{{"name": "{tool}", "arguments": {arguments}}}\n</tool_call>',
        "qwen3-coder": f"<tool_call>\n<function={tool}>\n{xml}</function>\n</tool_call>",
        "llama3": f'{{"name": "{tool}", "parameters": {arguments}}}',
        "mistral-list": f'[TOOL_CALLS] [{{"name": "{tool}", "arguments": {arguments}}}]',
        "mistral": f"[TOOL_CALLS]{tool}[ARGS]{arguments}",
    }[name]


def _two_calls(name: str) -> str:
    other = _call(name, "get", "{}", "")
    joints = {"llama3": "; ", "mistral": ""}
    if name == "mistral-list":
        return _call(name)[:-1] + ', {"name": "get", "arguments": {}}]'
    return _call(name) + joints.get(name, "\n") + other


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("is_required", "is_parallel"), MODES)
def test_a_valid_call_is_accepted_and_parsed(name: str, is_required: bool, is_parallel: bool) -> None:
    grammar = _grammar(name, is_required, is_parallel)
    for call in (_call(name), _call(name, "get", "{}", "")):
        assert _accepted(grammar, call) == (call, True)
    parts = parsed_pieces(format_named(name.removesuffix("-list")).parser(TOOLS), [_call(name)])
    assert [json.loads(part.text) for part in parts if isinstance(part, CallArguments)] == [json.loads(ARGUMENTS)]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("is_required", [True, False])
def test_only_a_parallel_grammar_accepts_a_second_call(name: str, is_required: bool) -> None:
    both = _two_calls(name)
    assert _accepted(_grammar(name, is_required, True), both) == (both, True)
    accepted, _ = _accepted(_grammar(name, is_required, False), both)
    assert accepted == _call(name).removesuffix("]" if name == "mistral-list" else "")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("is_required", "is_parallel"), MODES)
def test_wrong_names_and_arguments_are_refused(name: str, is_required: bool, is_parallel: bool) -> None:
    grammar = _grammar(name, is_required, is_parallel)
    wrong = _call(name, "get_time")
    assert _accepted(grammar, wrong) == (wrong[: wrong.index("time")], False)
    wrong = _call(name, arguments='{"city": "K", "days": "3"}', xml=XML_ARGUMENTS.replace("3", '"3'))
    assert _accepted(grammar, wrong) == (wrong[: wrong.rindex('"3')], False)
    wrong = _call(name, arguments='{"city": "K", "unit": "K"}', xml=XML_ARGUMENTS.replace("\nC\n", "\nK\n"))
    assert _accepted(grammar, wrong) == (wrong[: wrong.rindex("K")], False)
    wrong = _call(name, arguments='{"days": 3}', xml="<parameter=days>\n3\n</parameter>\n")
    assert _accepted(grammar, wrong) == (wrong[: wrong.index("days")], False)
    wrong = _call(name, "get", '{"a": 1}', "<parameter=a>\n1\n</parameter>\n")
    place = wrong.index("<parameter") + 1 if name == "qwen3-coder" else wrong.index('"a"')
    assert _accepted(grammar, wrong) == (wrong[:place], False)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("is_parallel", [True, False])
def test_free_text_may_go_over_into_calls(name: str, is_parallel: bool) -> None:
    grammar = _grammar(name, False, is_parallel)
    begin = "<|python_tag|>" if name == "llama3" else ""
    assert _accepted(grammar, "") == ("", True)
    assert _accepted(grammar, "Hi <b> {} [ü]\n") == ("Hi <b> {} [ü]\n", True)
    answer = f"Hi <b>\n{begin}{_call(name)}"
    assert _accepted(grammar, answer) == (answer, True)
    assert _accepted(grammar, answer + "x")[0] == answer
    wrong = f"\n{begin}{_call(name, 'other')}"
    assert _accepted(grammar, wrong) == (wrong[: wrong.index("other")], False)


@pytest.mark.parametrize("name", FORMATS)
def test_a_required_call_stands_alone(name: str) -> None:
    grammar = _grammar(name, True, True)
    assert _accepted(grammar, "") == ("", False)
    assert _accepted(grammar, "Hi") == ("", False)
    assert _accepted(grammar, _call(name) + "x")[0] == _call(name)


def test_llama_calls_may_follow_the_tag_and_other_text_cannot_begin_with_a_brace() -> None:
    call = "<|python_tag|>" + _call("llama3")
    for is_required in (True, False):
        assert _accepted(_grammar("llama3", is_required, True), call) == (call, True)
    assert _accepted(_grammar("llama3", False, True), '{"city"') == ('{"', False)


def test_mistral_calls_may_have_ids() -> None:
    call = "[TOOL_CALLS]get[CALL_ID]abcDEF123[ARGS]{}"
    assert _accepted(_grammar("mistral", True, True), call) == (call, True)
    assert _accepted(_grammar("mistral", True, True), "[TOOL_CALLS]get[CALL_ID]abc[")[0] == call[: call.index("DEF")]


@pytest.mark.parametrize("name", FORMATS)
def test_only_a_strict_tool_is_refused_for_a_schema_that_cannot_be_enforced(name: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}, "required": ["a"]}
    call = _call(name, "f", '{"a": [1]}', "<parameter=a>\n[1]\n</parameter>\n")
    assert _accepted(_grammar(name, True, True, (Tool("f", None, schema, False),)), call) == (call, True)
    strict = LLMatcher(byte_tokenizer(), _grammar(name, True, True, (Tool("f", None, schema, True),)), log_level=0)
    assert strict.is_error()


@pytest.mark.parametrize("name", FORMATS)
def test_schemas_may_refer_to_definitions(name: str) -> None:
    schema = {
        "type": "object",
        "$defs": {"Point": {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}, "required": ["x"]}},
        "properties": {"at": {"$ref": "#/$defs/Point"}},
        "required": ["at"],
    }
    schema["$defs"] = {**schema["$defs"], "X": {"type": "integer"}}  # type: ignore[dict-item]
    tools = (Tool("f", None, schema, True),)
    call = _call(name, "f", '{"at": {"x": 1}}', '<parameter=at>\n{"x": 1}\n</parameter>\n')
    assert _accepted(_grammar(name, True, True, tools), call) == (call, True)
    wrong = call.replace("1", '"1"')
    assert _accepted(_grammar(name, True, True, tools), wrong)[0] == call[: call.rindex("1")]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("schema", [None, {}, {"type": "object", "properties": {}}])
def test_a_tool_without_parameters_takes_an_empty_object(name: str, schema: dict[str, object] | None) -> None:
    grammar = _grammar(name, True, False, (Tool("f", None, schema, False),))
    call = _call(name, "f", "{}", "")
    assert _accepted(grammar, call) == (call, True)
