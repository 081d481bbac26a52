"""OpenAI's Responses API over HTTP, with the official client and a tiny model whose template shows tools.

The model is random, so texts are compared with those of the chat completions for the same messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import openai
import pytest
from openai import OpenAI

from paceline.gateway.errors import UnknownResponseError
from paceline.gateway.openai.responses.events import ItemEvents
from paceline.gateway.openai.responses.store import ResponseStore, StoredResponse
from paceline.gateway.parsing.events import CallArguments, CallBegin, Content
from paceline.gateway.parsing.message import Message
from tests.gateway.server_process import PATIENCE_S, ServerProcess
from tests.gateway.tool_server import TEMPLATE, THINKING_TEMPLATE, serve

QUESTION: Any = {"role": "user", "content": "how far is it?"}
CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
CITY["additionalProperties"] = False
TOOL: Any = {"type": "function", "name": "distance", "description": "Says how far.", "parameters": CITY}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    yield from serve(tmp_path_factory.mktemp("tools"), TEMPLATE)


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> OpenAI:
    return client_of(server, "one")


def client_of(server: ServerProcess, key: str) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=PATIENCE_S)


def ask(client: OpenAI, **fields: Any) -> Any:
    settings = {"model": "default", "input": QUESTION["content"], "temperature": 0, "max_output_tokens": 40, **fields}
    return client.responses.create(**settings)


def chat_text(client: OpenAI, messages: list[Any], **fields: Any) -> str:
    answer = client.chat.completions.create(model="default", messages=messages, temperature=0, max_tokens=40, **fields)
    return answer.choices[0].message.content or ""


def test_a_response_has_the_text_of_the_chat_completion(client: OpenAI) -> None:
    response = ask(client)
    assert response.output_text == chat_text(client, [QUESTION])
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.usage.output_tokens == 40
    assert response.usage.total_tokens == response.usage.input_tokens + 40
    with_instructions = ask(client, instructions="be short", input=[QUESTION])
    assert with_instructions.output_text == chat_text(client, [{"role": "system", "content": "be short"}, QUESTION])


def test_a_stream_has_numbered_events_and_ends_with_the_response(client: OpenAI) -> None:
    events = list(ask(client, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == ask(client).output_text
    assert {event.item_id for event in events if hasattr(event, "item_id")} == {events[-1].response.output[0].id}


def test_the_clients_own_reader_of_streams_agrees(client: OpenAI) -> None:
    fields: Any = {"text": {"format": {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}}}
    with client.responses.stream(model="default", input="how far is it?", temperature=0, **fields) as stream:
        for _ in stream:
            pass
        text = stream.get_final_response().output_text
    assert text == ask(client, max_output_tokens=100, **fields).output_text


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "distance"}])
def test_a_required_call_is_valid_whole_and_streamed(client: OpenAI, choice: Any) -> None:
    fields = {"tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False, "max_output_tokens": 200}
    response = ask(client, **fields)
    [call] = response.output
    assert (call.type, call.name, call.status, response.status) == (
        "function_call",
        "distance",
        "completed",
        "completed",
    )
    jsonschema.validate(json.loads(call.arguments), CITY)
    events = list(ask(client, stream=True, **fields))
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    [done] = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert "".join(deltas) == done.arguments == call.arguments
    assert events[-1].response.output[0].arguments == call.arguments


def test_streamed_parallel_calls_end_one_after_the_other() -> None:
    parts = [CallBegin(0, "f"), CallArguments(0, '{"a": 1}'), CallBegin(1, "g"), CallArguments(1, "{}")]
    message = Message()
    message.add(parts)  # one output of the engine may bring all of them
    items = ItemEvents(message)
    events = [event for part in parts for event in items.of(part)] + list(items.end("completed"))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [(item["name"], item["arguments"], item["status"]) for item in done] == [
        ("f", '{"a": 1}', "completed"),
        ("g", "{}", "completed"),
    ]
    assert [item["call_id"] for item in done] == [call.call_id for call in message.calls]
    assert [event["output_index"] for event in events if event["type"] == "response.output_item.done"] == [0, 1]


def test_text_after_a_call_is_an_item_of_its_own_and_an_empty_answer_is_a_message() -> None:
    parts = [Content("a"), CallBegin(0, "f"), CallArguments(0, "{}"), Content("b"), Content("c")]
    message = Message()
    message.add(parts)
    items = ItemEvents(message)
    events = [event for part in parts for event in items.of(part)] + list(items.end_all("completed"))
    texts = [event["text"] for event in events if event["type"] == "response.output_text.done"]
    assert texts == ["a", "bc"]
    assert len({item["id"] for item in items.done}) == 3
    empty = ItemEvents(Message())
    kinds = [event["type"] for event in empty.end_all("completed")]
    assert kinds[0] == "response.output_item.added"
    assert [item["content"][0]["text"] for item in empty.done] == [""]


def test_calls_and_results_go_back_into_the_template(client: OpenAI) -> None:
    items: Any = [
        QUESTION,
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"role": "assistant", "content": [{"type": "output_text", "text": "let me see", "annotations": []}]},
        {"type": "function_call", "call_id": "call_1", "name": "distance", "arguments": '{"city": "Rome"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "1106 km"},
        {"role": "user", "content": [{"type": "input_text", "text": "and back?"}]},
    ]
    function = {"name": "distance", "arguments": '{"city": "Rome"}'}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    expected: Any = [
        QUESTION,
        {"role": "assistant", "content": "let me see", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": "1106 km"},
        {"role": "user", "content": "and back?"},
    ]
    assert ask(client, input=items).output_text == chat_text(client, expected)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_conversation_goes_on_from_a_stored_response(client: OpenAI, is_streamed: bool) -> None:
    first = list(ask(client, stream=True))[-1].response if is_streamed else ask(client)
    second = ask(client, input="and back?", previous_response_id=first.id)
    turns: list[Any] = [QUESTION, {"role": "assistant", "content": first.output_text}]
    turns.append({"role": "user", "content": "and back?"})
    assert second.output_text == chat_text(client, turns)
    assert second.previous_response_id == first.id
    third = ask(client, input="why?", previous_response_id=second.id)
    turns += [{"role": "assistant", "content": second.output_text}, {"role": "user", "content": "why?"}]
    assert third.output_text == chat_text(client, turns)


def test_a_stored_response_can_be_fetched_and_deleted(client: OpenAI) -> None:
    response = ask(client, metadata={"topic": "cities"})
    fetched = client.responses.retrieve(response.id)
    assert fetched.model_dump() == response.model_dump()
    [item] = client.responses.input_items.list(response.id).data
    assert item.content[0].text == QUESTION["content"]
    client.responses.delete(response.id)
    for use in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            use(response.id)
    with pytest.raises(openai.NotFoundError):
        ask(client, previous_response_id=response.id)


def test_what_is_not_to_be_stored_is_not(client: OpenAI) -> None:
    response = ask(client, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_another_tenant_sees_nothing(server: ServerProcess, client: OpenAI) -> None:
    response = ask(client)
    other = client_of(server, "two")
    with pytest.raises(openai.NotFoundError):
        other.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError):
        other.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        ask(other, previous_response_id=response.id)
    assert client.responses.retrieve(response.id).id == response.id


def test_the_answer_has_the_form_that_is_asked_for(client: OpenAI) -> None:
    form = {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}
    response = ask(client, text={"format": form}, max_output_tokens=100)
    jsonschema.validate(json.loads(response.output_text), CITY)
    assert response.status == "completed"


def test_reasoning_is_an_item_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    for server in serve(tmp_path_factory.mktemp("thinking"), THINKING_TEMPLATE):
        client = client_of(server, "one")
        plain = ask(
            client, reasoning={"effort": "none"}, text={"format": {"type": "json_schema", "schema": {"const": 1}}}
        )
        assert plain.output_text == "1"
        body = {"input": "how far?", "temperature": 0, "max_output_tokens": 40, "reasoning": {"effort": "none"}}
        assert httpx.post(f"{server.url}/v1/responses", json=body, timeout=PATIENCE_S).status_code == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0]"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_name(client: OpenAI, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **fields)
    assert (caught.value.param or "").startswith(param)
    assert param in str(caught.value)


def test_the_store_forgets_what_was_not_used_for_the_longest_time() -> None:
    def stored(name: str) -> StoredResponse:
        return StoredResponse({"id": name, "text": "x" * 100}, (), 0)

    size = 3 * len('{"id":"a","text":""}') + 300
    store = ResponseStore(max_size_bytes=size)
    for name in "abc":
        store.put("tenant", stored(name))
    store.get("tenant", "a")
    store.put("tenant", stored("d"))
    assert [store.get("tenant", name).response["id"] for name in "acd"] == ["a", "c", "d"]
    with pytest.raises(UnknownResponseError):
        store.get("tenant", "b")
    store.remove("tenant", "a")
    store.put("tenant", stored("e"))
    assert store.get("tenant", "c").response["id"] == "c"
    store.put("tenant", StoredResponse({"id": "huge", "text": "x" * 1000}, (), 0))
    with pytest.raises(UnknownResponseError):
        store.get("tenant", "huge")
