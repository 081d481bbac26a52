"""Anthropic's Messages API over HTTP, with a tiny model whose template shows tools.

The model is random, so texts are compared with those of the chat completions for the same messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.gateway.server_process import PATIENCE_S, ServerProcess
from tests.gateway.tool_server import TEMPLATE, THINKING_TEMPLATE, serve

QUESTION = {"role": "user", "content": "how far is it?"}
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
CITY["additionalProperties"] = False
TOOL = {"name": "distance", "description": "Says how far a city is.", "input_schema": CITY}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    yield from serve(tmp_path_factory.mktemp("tools"), TEMPLATE)


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        yield client


def ask(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    response = http.post("/v1/messages", json={"messages": [QUESTION], "max_tokens": 40, "temperature": 0, **fields})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def events_of(http: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    body = {"messages": [QUESTION], "max_tokens": 40, "temperature": 0, "stream": True, **fields}
    response = http.post("/v1/messages", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [block.split("\n") for block in response.text.strip().split("\n\n")]
    assert all(len(lines) == 2 for lines in events)
    found = [json.loads(data.removeprefix("data: ")) for _, data in events]
    assert [name for name, _ in events] == [f"event: {event['type']}" for event in found]
    return found


def joined(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the content blocks that a client puts together from a stream."""
    blocks: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            block = blocks[event["index"]]
            match delta["type"]:
                case "text_delta":
                    block["text"] += delta["text"]
                case "thinking_delta":
                    block["thinking"] += delta["thinking"]
                case "input_json_delta":
                    block["json"] += delta["partial_json"]
    for block in blocks:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    return blocks


def openai_text(http: httpx.Client, messages: list[dict[str, Any]], **fields: Any) -> str:
    body = {"messages": messages, "max_tokens": 40, "temperature": 0, **fields}
    return http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]


def test_an_answer_has_the_text_of_the_chat_completion(http: httpx.Client) -> None:
    answer = ask(http)
    assert (answer["type"], answer["role"]) == ("message", "assistant")
    assert answer["id"].startswith("msg_")
    assert answer["content"] == [{"type": "text", "text": openai_text(http, [QUESTION])}]
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("max_tokens", None)
    usage = answer["usage"]
    assert usage["output_tokens"] == 40
    counted = http.post("/v1/messages/count_tokens", json={"messages": [QUESTION]}).json()
    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


def test_tokens_are_counted_beyond_the_context_window_too(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "far " * 4000}]}
    assert http.post("/v1/messages/count_tokens", json=body).json()["input_tokens"] > 4000
    assert http.post("/v1/messages", json={**body, "max_tokens": 1}).status_code == 400


def test_a_stream_has_the_events_in_order_and_the_same_blocks(http: httpx.Client) -> None:
    events = events_of(http)
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert joined(events) == ask(http)["content"]
    assert events[-2]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] == 40


def test_blocks_and_the_system_prompt_reach_the_template(http: httpx.Client) -> None:
    parts = [{"type": "text", "text": "how far"}, {"type": "text", "text": " is it?"}]
    system = [{"type": "text", "text": "be short", "cache_control": {"type": "ephemeral"}}]
    answer = ask(http, messages=[{"role": "user", "content": parts}], system=system)
    expected = openai_text(http, [{"role": "system", "content": "be short"}, {"role": "user", "content": parts}])
    assert answer["content"] == [{"type": "text", "text": expected}]


def test_the_stop_sequence_that_ended_the_answer_is_named(http: httpx.Client) -> None:
    text = ask(http)["content"][0]["text"]
    stop = text[10:13]
    answer = ask(http, stop_sequences=["never in it", stop])
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", stop)
    assert answer["content"][0]["text"] == text[: text.index(stop)]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "distance"}])
def test_a_required_call_is_valid_whole_and_streamed(http: httpx.Client, choice: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"tools": [TOOL], "tool_choice": {**choice, "disable_parallel_tool_use": True}}
    answer = ask(http, max_tokens=200, **fields)
    (block,) = answer["content"]
    assert (block["type"], block["name"], answer["stop_reason"]) == ("tool_use", "distance", "tool_use")
    assert block["id"].startswith("toolu_")
    assert block["input"]["city"] in ("Rome", "Oslo")
    (streamed,) = joined(events_of(http, max_tokens=200, **fields))
    assert {**streamed, "id": ""} == {**block, "id": ""}


def test_calls_and_results_go_back_into_the_template(http: httpx.Client) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "distance", "input": {"city": "Rome"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "1106 km"}]}
    messages = [
        QUESTION,
        {"role": "assistant", "content": [{"type": "text", "text": "let me see"}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "and back?"}]},
    ]
    function = {"name": "distance", "arguments": '{"city": "Rome"}'}
    expected = [
        QUESTION,
        {
            "role": "assistant",
            "content": "let me see",
            "tool_calls": [{"id": "toolu_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "1106 km"},
        {"role": "user", "content": "and back?"},
    ]
    assert ask(http, messages=messages)["content"] == [{"type": "text", "text": openai_text(http, expected)}]


def test_messages_of_one_role_are_one_turn_and_errors_of_tools_are_shown(http: httpx.Client) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "distance", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such city", "is_error": True}
    messages = [
        {"role": "user", "content": "how far"},
        {"role": "user", "content": " is it?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    parts = [{"type": "text", "text": "how far"}, {"type": "text", "text": " is it?"}]
    function = {"name": "distance", "arguments": "{}"}
    expected = [
        {"role": "user", "content": parts},
        {"role": "assistant", "tool_calls": [{"id": "toolu_1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "Error: no such city"},
    ]
    assert ask(http, messages=messages)["content"] == [{"type": "text", "text": openai_text(http, expected)}]


def test_the_answer_has_the_form_that_is_asked_for(http: httpx.Client) -> None:
    answer = ask(http, output_config={"format": {"type": "json_schema", "schema": CITY}}, max_tokens=100)
    assert json.loads(answer["content"][0]["text"])["city"] in ("Rome", "Oslo")
    assert answer["stop_reason"] == "end_turn"


def test_reasoning_is_a_block_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    form = {"output_config": {"format": {"type": "json_schema", "schema": {"const": 1}}}}
    for server in serve(tmp_path_factory.mktemp("thinking"), THINKING_TEMPLATE):
        with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
            thinking = ask(http, thinking={"type": "enabled", "budget_tokens": 1024})
            assert [block["type"] for block in thinking["content"]] == ["thinking"]
            assert thinking["content"][0]["thinking"] != ""
            streamed = joined(events_of(http, thinking={"type": "enabled", "budget_tokens": 1024}))
            assert streamed == thinking["content"]
            plain = ask(http, thinking={"type": "disabled"}, **form)
            assert plain["content"] == [{"type": "text", "text": "1"}]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [QUESTION, {"role": "assistant", "content": "It is"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "a"}]}]}, "messages[0].content"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"wish": 1}, "wish"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_name(http: httpx.Client, fields: dict[str, Any], param: str) -> None:
    response = http.post("/v1/messages", json={"messages": [QUESTION], "max_tokens": 4, **fields})
    assert response.status_code == 400
    body = response.json()
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["error"]["param"] == param
    assert param in body["error"]["message"]


def test_errors_of_all_kinds_have_anthropics_form(http: httpx.Client) -> None:
    body = {"messages": [QUESTION], "max_tokens": 4}
    missing = http.post("/v1/messages", json={**body, "model": "gpt-9"})
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")
    assert http.get("/v1/messages").json()["type"] == "error"
    large = http.post("/v1/messages", content=b" " * (16 * 2**20 + 1))
    assert (large.status_code, large.json()["error"]["type"]) == (413, "request_too_large")
    too_long = http.post("/v1/messages", json={**body, "messages": [{"role": "user", "content": "far " * 4000}]})
    assert (too_long.status_code, too_long.json()["error"]["type"]) == (400, "invalid_request_error")
