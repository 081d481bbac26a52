"""Answers in a form, and tool calls, over HTTP with OpenAI's official client and a tiny model.

The model is random, so what it says in a form is noise, but it must have the form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import openai
import pytest
from openai import OpenAI

from tests.gateway.server_process import PATIENCE_S, ServerProcess
from tests.gateway.tool_server import TEMPLATE, THINKING_TEMPLATE, serve

MESSAGES: Any = [{"role": "user", "content": "how far is it?"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 8},
        "unit": {"enum": ["km", "miles"]},
        "legs": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
    },
    "required": ["city", "unit", "legs"],
    "additionalProperties": False,
}
CLOCK = {"type": "object", "properties": {"zone": {"enum": ["utc", "local"]}}, "required": ["zone"]}
CLOCK["additionalProperties"] = False


def tool(name: str, parameters: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **fields}}


TOOLS: Any = [tool("distance", SCHEMA, description="Says how far a city is."), tool("clock", CLOCK, strict=True)]
FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "regex": ({"regex": "[a-c]{3}-[0-9]{2}"}, "[a-c]{3}-[0-9]{2}"),
    "lark": ({"grammar": 'start: "on" | "off" /[0-9]/'}, "on|off[0-9]"),
    "gbnf": ({"grammar": 'root ::= "on" | "off" [0-9]'}, "on|off[0-9]"),
    "choice": ({"choice": ["north", "south"]}, "north|south"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Yields a server of a model whose template shows tools."""
    yield from serve(tmp_path_factory.mktemp("tools"), TEMPLATE)


@pytest.fixture(scope="module")
def thinking_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Yields a server of a model that reasons if it is told to."""
    yield from serve(tmp_path_factory.mktemp("thinking"), THINKING_TEMPLATE)


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def thinking_client(thinking_server: ServerProcess) -> OpenAI:
    return OpenAI(base_url=f"{thinking_server.url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE_S)


def chat(client: OpenAI, **fields: Any) -> Any:
    settings = {"model": "default", "messages": MESSAGES, "max_tokens": 200, "seed": 7, **fields}
    return client.chat.completions.create(**settings)


def called(choice: Any) -> list[tuple[str, Any]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("strict", [True, False, None])
def test_a_json_schema_is_honoured(client: OpenAI, temperature: float, strict: bool | None) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA, "strict": strict}}
    answer = chat(client, response_format=wanted, temperature=temperature, n=2)
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)


def test_a_json_object_is_an_object(client: OpenAI) -> None:
    answer = chat(client, response_format={"type": "json_object"}, temperature=0, max_tokens=40)
    assert answer.choices[0].message.content.startswith("{")


@pytest.mark.parametrize(("fields", "pattern"), FORMS.values(), ids=FORMS)
def test_other_forms_are_honoured_in_chats_and_completions(
    client: OpenAI, fields: dict[str, Any], pattern: str
) -> None:
    answer = chat(client, extra_body=fields).choices[0]
    assert re.fullmatch(pattern, answer.message.content)
    assert answer.finish_reason == "stop"
    completion = client.completions.create(model="default", prompt="so", max_tokens=20, seed=3, extra_body=fields)
    assert re.fullmatch(pattern, completion.choices[0].text)


def test_json_that_is_cut_off_says_so(client: OpenAI) -> None:
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}
    answer = chat(client, response_format=wanted, max_tokens=5).choices[0]
    assert answer.finish_reason == "length"
    assert answer.message.content.startswith('{"')
    with pytest.raises(ValueError, match=r"."):
        json.loads(answer.message.content)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "strict": True, "schema": {"not": {}}},
                }
            },
            "response_format.json_schema.schema",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"regex": "("}, "regex"),
        ({"grammar": "root ::= ("}, "grammar"),
        ({"choice": []}, "choice"),
        ({"regex": "a", "choice": ["a"]}, "choice"),
        ({"response_format": {"type": "json_object"}, "regex": "a"}, "regex"),
        ({"tools": [tool("f", {}), tool("f", {})]}, "tools"),
        ({"tools": [tool("f", {"type": "array"})]}, "tools[0].function.parameters"),
        ({"tools": [tool("f", {"not": {}}, strict=True)]}, "tools"),
        ({"tools": [tool("a b", {})]}, "tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": TOOLS, "functions": [{"name": "f"}]}, "functions"),
        ({"functions": [{"name": "f", "parameters": {"not": {}}, "strict": True}]}, "functions"),
        ({"choice": ["a"], "min_tokens": 5}, "min_tokens"),
        ({"tools": [tool("f", {"description": "a" * 300_000})]}, "tools"),
    ],
)
def test_what_cannot_be_honoured_is_a_400_that_names_the_field(
    client: OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, extra_body=fields)
    assert caught.value.param == param


def test_a_required_call_is_valid(client: OpenAI) -> None:
    for seed in range(4):
        choice = chat(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=seed).choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
        [(name, arguments)] = called(choice)
        jsonschema.validate(arguments, {"distance": SCHEMA, "clock": CLOCK}[name])
        assert choice.message.tool_calls[0].id.startswith("call_")


def test_a_named_call_calls_that_tool(client: OpenAI) -> None:
    wanted: Any = {"type": "function", "function": {"name": "clock"}}
    choice = chat(client, tools=TOOLS, tool_choice=wanted, parallel_tool_calls=False).choices[0]
    [(name, arguments)] = called(choice)
    assert (name, arguments["zone"] in ("utc", "local")) == ("clock", True)


def test_allowed_tools_are_the_only_ones_that_are_called(client: OpenAI) -> None:
    def allowed(mode: str, *names: str) -> Any:
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}

    fields: dict[str, Any] = {"tools": TOOLS, "parallel_tool_calls": False}
    for seed in range(3):
        choice = chat(client, tool_choice=allowed("required", "clock"), seed=seed, **fields).choices[0]
        assert [name for name, _ in called(choice)] == ["clock"]
    both = chat(client, tool_choice=allowed("required", "clock", "distance"), **fields)
    assert both.choices[0].message.tool_calls
    for wrong in (allowed("required", "g"), allowed("none", "clock"), allowed("auto")):
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client, tool_choice=wrong, **fields)
        assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("is_parallel", [True, False])
def test_a_stream_brings_the_same_calls_in_pieces(client: OpenAI, is_parallel: bool) -> None:
    fields: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": is_parallel}
    whole = chat(client, **fields).choices[0]
    calls: dict[int, dict[str, str]] = {}
    reasons = []
    for chunk in chat(client, stream=True, **fields):
        reasons.append(chunk.choices[0].finish_reason)
        for delta in chunk.choices[0].delta.tool_calls or ():
            if delta.id is not None:
                assert delta.type == "function"
                calls[delta.index] = {"name": delta.function.name, "arguments": ""}
            calls[delta.index]["arguments"] += delta.function.arguments
    assert [(call["name"], json.loads(call["arguments"])) for call in calls.values()] == called(whole)
    assert reasons[-1] == whole.finish_reason
    assert set(reasons[:-1]) == {None}


def test_a_call_that_is_cut_off_has_the_finish_reason_length(client: OpenAI) -> None:
    choice = chat(client, tools=TOOLS, tool_choice="required", max_tokens=45).choices[0]
    assert choice.finish_reason == "length"


def test_a_call_that_a_stop_string_cuts_off_is_not_reported_as_a_call(client: OpenAI) -> None:
    choice = chat(client, tools=TOOLS, tool_choice="required", stop=["}"]).choices[0]
    assert choice.finish_reason == "stop"
    with pytest.raises(ValueError, match=r"."):
        json.loads(choice.message.tool_calls[0].function.arguments)


def test_arguments_that_cannot_be_enforced_may_be_anything(client: OpenAI) -> None:
    unknown = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}
    strict = {"tools": [tool("f", unknown, strict=True)], "tool_choice": "required"}
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, **strict)
    assert caught.value.param == "tools"
    lenient: Any = {"tools": [tool("f", unknown)], "tool_choice": "required", "parallel_tool_calls": False}
    choice = chat(client, **lenient, max_tokens=40).choices[0]
    assert choice.message.tool_calls[0].function.name == "f"
    assert choice.message.tool_calls[0].function.arguments.startswith("{")


def test_the_older_functions_give_a_function_call(client: OpenAI) -> None:
    functions = [one["function"] for one in TOOLS]
    wanted: Any = {"functions": functions, "function_call": {"name": "clock"}}
    choice = chat(client, **wanted).choices[0]
    assert choice.finish_reason == "function_call"
    assert choice.message.function_call.name == "clock"
    assert json.loads(choice.message.function_call.arguments)["zone"] in ("utc", "local")
    pieces = [chunk.choices[0].delta.function_call for chunk in chat(client, stream=True, **wanted)]
    assert "".join(piece.arguments for piece in pieces if piece) == choice.message.function_call.arguments


def test_calls_and_results_go_back_into_the_template(client: OpenAI) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": '{"zone": "utc"}'}}
    replayed = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "annotations": []}
    replayed |= {"reasoning_content": "a clock helps", "audio": None}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "12:00"}
    short = chat(client, messages=MESSAGES, max_tokens=1)
    long = chat(client, messages=[*MESSAGES, replayed, result], tools=TOOLS, max_tokens=1)
    assert long.usage.prompt_tokens > short.usage.prompt_tokens + 100
    without = chat(client, messages=[*MESSAGES, replayed, result], tools=TOOLS, tool_choice="none", max_tokens=1)
    assert without.usage.prompt_tokens < long.usage.prompt_tokens - 100


def test_tools_and_a_form_together_give_a_call_or_the_form(client: OpenAI) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "clock", "schema": CLOCK, "strict": True}}
    for seed in range(6):
        choice = chat(client, tools=TOOLS, response_format=wanted, seed=seed, temperature=1).choices[0]
        if choice.message.tool_calls:
            assert {name for name, _ in called(choice)} <= {"distance", "clock"}
        else:
            jsonschema.validate(json.loads(choice.message.content), CLOCK)


def test_the_form_begins_after_the_reasoning(thinking_client: OpenAI) -> None:
    """A tiny model does not find the end of its reasoning, so all that it says is reasoning."""
    fields: dict[str, Any] = {"choice": ["north"], "chat_template_kwargs": {"enable_thinking": True}}
    answer = chat(thinking_client, extra_body=fields, max_tokens=12).choices[0]
    assert answer.message.reasoning_content != ""
    assert (answer.message.content, answer.finish_reason) == ("", "length")


def test_reasoning_may_be_left_out(thinking_client: OpenAI) -> None:
    for fields in ({"reasoning_effort": "none"}, {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}):
        answer = chat(thinking_client, max_tokens=12, **fields).choices[0].message
        assert answer.content != ""
        assert not hasattr(answer, "reasoning_content")


def test_reasoning_is_streamed_apart(thinking_client: OpenAI) -> None:
    fields: dict[str, Any] = {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}, "max_tokens": 12}
    whole = chat(thinking_client, **fields).choices[0].message
    deltas = [chunk.choices[0].delta for chunk in chat(thinking_client, stream=True, **fields)]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == whole.reasoning_content
    assert "".join(delta.content or "" for delta in deltas) == whole.content == ""


def test_the_metrics_count_masks(server: ServerProcess, client: OpenAI) -> None:
    before = server.metrics()
    answer = chat(client, extra_body={"choice": ["north", "south"]})
    after = server.metrics()
    assert after["paceline_constraint_masks_total"] - before["paceline_constraint_masks_total"] >= (
        answer.usage.completion_tokens - answer.speculation["accepted"]
    )
    assert after["paceline_constraint_mask_seconds_total"] > before["paceline_constraint_mask_seconds_total"]
    assert after["paceline_constraint_step_seconds_total"] > after["paceline_constraint_mask_seconds_total"]


def test_an_openapi_reader_finds_the_fields(server: ServerProcess) -> None:
    schemas = httpx.get(f"{server.url}/openapi.json", timeout=PATIENCE_S).json()["components"]["schemas"]
    assert {"tools", "tool_choice", "response_format", "regex", "grammar", "choice"} <= set(
        schemas["ChatCompletionRequest"]["properties"]
    )
