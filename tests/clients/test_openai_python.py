"""OpenAI's Python client: forms, tools and streams, also through its helpers `parse` and `stream`."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.clients.questions import (
    SETTINGS,
    TIMEOUT_S,
    TRIP_QUESTION,
    WEATHER_QUESTION,
    WEATHER_RESULT,
    WEATHER_TOOL,
    Place,
    Report,
    Trip,
    check_trip,
    user,
)

TRIP_TOOL: Any = openai.pydantic_function_tool(Trip, name="record_trip", description="Records a trip.")
TOOLS = [TRIP_TOOL, WEATHER_TOOL]
CHOICES: dict[str, Any] = {
    "required": "required",
    "named": {"type": "function", "function": {"name": "get_weather"}},
}


@pytest.fixture(scope="module")
def client(server_url: str) -> OpenAI:
    return OpenAI(base_url=server_url, api_key="unused", max_retries=0, timeout=TIMEOUT_S)


def chat(client: OpenAI, question: str, **fields: Any) -> Any:
    """Returns the only choice of an answer."""
    [choice] = client.chat.completions.create(messages=user(question), **SETTINGS, **fields).choices
    return choice


def streamed(client: OpenAI, question: str, **fields: Any) -> tuple[str, list[dict[str, str]], list[str | None]]:
    """Returns the content, the calls and the finish reasons that a raw stream's deltas add up to."""
    content, calls, reasons = "", [], []
    for chunk in client.chat.completions.create(messages=user(question), stream=True, **SETTINGS, **fields):
        [choice] = chunk.choices
        reasons.append(choice.finish_reason)
        content += choice.delta.content or ""
        for delta in choice.delta.tool_calls or ():
            if delta.id is not None:
                assert delta.index == len(calls)
                calls.append({"name": delta.function.name, "arguments": ""})
            calls[delta.index]["arguments"] += delta.function.arguments
    return content, calls, reasons


def called(message: Any) -> list[dict[str, str]]:
    """Returns the names and the arguments of the message's calls."""
    calls = message.tool_calls or []
    return [{"name": call.function.name, "arguments": call.function.arguments} for call in calls]


def test_parse_returns_an_object_of_the_schema(client: OpenAI) -> None:
    answer = client.chat.completions.parse(messages=user(TRIP_QUESTION), response_format=Trip, **SETTINGS)
    [choice] = answer.choices
    assert choice.finish_reason == "stop"
    assert isinstance(choice.message.parsed, Trip)
    assert Trip.model_validate_json(choice.message.content or "", strict=True) == choice.message.parsed
    check_trip(choice.message.parsed)


def test_a_streamed_object_is_the_same(client: OpenAI) -> None:
    whole = client.chat.completions.parse(messages=user(TRIP_QUESTION), response_format=Trip, **SETTINGS).choices[0]
    with client.chat.completions.stream(messages=user(TRIP_QUESTION), response_format=Trip, **SETTINGS) as stream:
        events: list[Any] = list(stream)
        last = stream.get_final_completion().choices[0]
    assert "".join(event.delta for event in events if event.type == "content.delta") == whole.message.content
    [done] = [event for event in events if event.type == "content.done"]
    assert (done.content, done.parsed) == (whole.message.content, whole.message.parsed)
    assert (last.message.content, last.message.parsed) == (whole.message.content, whole.message.parsed)
    assert (last.message.tool_calls, last.finish_reason) == (None, "stop")


def test_a_json_object_is_an_object(client: OpenAI) -> None:
    fields: dict[str, Any] = {"response_format": {"type": "json_object"}}
    question = f"{TRIP_QUESTION} Answer with a JSON object that has the keys traveller and cities."
    whole = chat(client, question, **fields)
    assert whole.finish_reason == "stop"
    assert isinstance(json.loads(whole.message.content), dict)
    content, calls, reasons = streamed(client, question, **fields)
    assert (content, calls, reasons[-1]) == (whole.message.content, [], "stop")


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_a_demanded_call_is_valid_whole_and_streamed(client: OpenAI, choice: Any) -> None:
    fields: dict[str, Any] = {"tools": TOOLS, "tool_choice": choice}
    whole = chat(client, WEATHER_QUESTION, **fields)
    assert (whole.finish_reason, whole.message.content) == ("tool_calls", None)
    [call] = called(whole.message)
    assert call["name"] == "get_weather"
    assert Place.model_validate_json(call["arguments"], strict=True) == Place(city="Paris", unit="celsius")
    content, calls, reasons = streamed(client, WEATHER_QUESTION, **fields)
    assert (content, calls) == ("", [call])
    assert (set(reasons[:-1]), reasons[-1]) == ({None}, "tool_calls")


def test_a_tool_of_a_pydantic_model_gets_an_object_of_it(client: OpenAI) -> None:
    fields: dict[str, Any] = {"tools": [TRIP_TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    answer = client.chat.completions.parse(messages=user(TRIP_QUESTION), **SETTINGS, **fields)
    [call] = answer.choices[0].message.tool_calls or ()
    assert call.function.name == "record_trip"
    assert isinstance(call.function.parsed_arguments, Trip)
    check_trip(call.function.parsed_arguments)


def test_the_stream_helper_reports_the_pieces_of_a_call(client: OpenAI) -> None:
    fields: dict[str, Any] = {"tools": [TRIP_TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    whole = client.chat.completions.parse(messages=user(TRIP_QUESTION), **SETTINGS, **fields).choices[0]
    with client.chat.completions.stream(messages=user(TRIP_QUESTION), **SETTINGS, **fields) as stream:
        events: list[Any] = list(stream)
        last = stream.get_final_completion().choices[0]
    pieces = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
    [done] = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    [call] = called(whole.message)
    assert len(pieces) > 2
    assert "".join(piece.arguments_delta for piece in pieces) == done.arguments == call["arguments"]
    assert (done.name, done.index) == ("record_trip", 0)
    assert isinstance(done.parsed_arguments, Trip)
    assert (called(last.message), last.finish_reason) == ([call], "tool_calls")


def test_a_streamed_call_has_no_content_as_the_whole_one(client: OpenAI) -> None:
    """OpenAI's stream of a call begins with the content null, so that the helper reports no content at all."""
    fields: dict[str, Any] = {"tools": [WEATHER_TOOL], "tool_choice": "required"}
    with client.chat.completions.stream(messages=user(WEATHER_QUESTION), **SETTINGS, **fields) as stream:
        kinds = {event.type for event in stream}
        message = stream.get_final_completion().choices[0].message
    assert message.content is None
    assert "content.delta" not in kinds


def test_an_offered_tool_is_called_validly_or_not_at_all(client: OpenAI) -> None:
    fields: dict[str, Any] = {"tools": TOOLS, "tool_choice": "auto"}
    whole = chat(client, WEATHER_QUESTION, **fields)
    calls = called(whole.message)
    if calls:
        assert whole.finish_reason == "tool_calls"
    else:
        assert whole.finish_reason == "stop"
        assert whole.message.content
    for call in calls:
        {"get_weather": Place, "record_trip": Trip}[call["name"]].model_validate_json(call["arguments"])
    content, streamed_calls, reasons = streamed(client, WEATHER_QUESTION, **fields)
    assert (content, streamed_calls, reasons[-1]) == (whole.message.content or "", calls, whole.finish_reason)


def test_the_result_of_a_call_leads_to_the_final_answer(client: OpenAI) -> None:
    message = chat(client, WEATHER_QUESTION, tools=TOOLS, tool_choice="required").message
    [call] = message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": WEATHER_RESULT}
    messages: list[Any] = [*user(WEATHER_QUESTION), message, result]
    for fields in ({"tools": TOOLS, "tool_choice": "none"}, {}):
        answer = client.chat.completions.create(messages=messages, **SETTINGS, **fields).choices[0]
        assert (answer.finish_reason, answer.message.tool_calls) == ("stop", None)
        assert WEATHER_RESULT in (answer.message.content or "")
    report = client.chat.completions.parse(messages=messages, response_format=Report, **SETTINGS).choices[0]
    assert report.message.parsed == Report(city="Paris", temperature=21)


def test_a_parsed_answer_can_be_sent_back(client: OpenAI) -> None:
    """The client sends the fields that it added, `parsed` and `parsed_arguments`, along with the message."""
    fields: dict[str, Any] = {"tools": [TRIP_TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    form = client.chat.completions.parse(messages=user(TRIP_QUESTION), response_format=Trip, **SETTINGS)
    call = client.chat.completions.parse(messages=user(TRIP_QUESTION), **SETTINGS, **fields)
    with client.chat.completions.stream(messages=user(TRIP_QUESTION), **SETTINGS, **fields) as stream:
        streamed_call = stream.get_final_completion()
    for answer in (form, call, streamed_call):
        message: Any = answer.choices[0].message
        results = [{"role": "tool", "tool_call_id": one.id, "content": "recorded"} for one in message.tool_calls or ()]
        messages: list[Any] = [*user(TRIP_QUESTION), message, *results, *user("What is her name?")]
        again = client.chat.completions.create(messages=messages, **SETTINGS).choices[0]
        assert "Ada" in (again.message.content or "")


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"regex": "(Mon|Tues|Fri)day, [0-9]{1,2} (May|June)"}, "(Mon|Tues|Fri)day, [0-9]{1,2} (May|June)"),
        ({"choice": ["north", "south"]}, "north|south"),
        ({"grammar": 'root ::= "on" | "off"'}, "on|off"),
    ],
    ids=["regex", "choice", "grammar"],
)
def test_other_forms_are_honoured(client: OpenAI, fields: dict[str, Any], pattern: str) -> None:
    whole = chat(client, "Choose at random.", extra_body=fields)
    assert re.fullmatch(pattern, whole.message.content)
    content, _, reasons = streamed(client, "Choose at random.", extra_body=fields)
    assert (content, reasons[-1], whole.finish_reason) == (whole.message.content, "stop", "stop")


def test_a_strict_schema_that_cannot_be_enforced_is_a_400_that_names_it(client: OpenAI) -> None:
    schema = {"type": "object", "properties": {"city": {"not": {"const": "Rome"}}}, "required": ["city"]}
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "trip", "strict": True, "schema": schema}}
    with pytest.raises(openai.BadRequestError, match='"not"') as caught:
        chat(client, TRIP_QUESTION, response_format=wanted)
    assert caught.value.param == "response_format.json_schema.schema"
    assert caught.value.code == "unsupported_constraint"
