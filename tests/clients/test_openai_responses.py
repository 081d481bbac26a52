"""The Responses API with OpenAI's Python client: text, streams, tools, forms, conversations and tenants."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.clients.questions import (
    TIMEOUT_S,
    TRIP_QUESTION,
    WEATHER_QUESTION,
    WEATHER_RESULT,
    WEATHER_TOOL,
    Place,
    Trip,
    check_trip,
)

SETTINGS: dict[str, Any] = {"model": "default", "temperature": 0, "max_output_tokens": 300}
TOOL: Any = {"type": "function", **WEATHER_TOOL["function"]}
QUESTION = "Which is the capital of France? Answer in one word."


@pytest.fixture(scope="module")
def client(server_url: str) -> OpenAI:
    return client_of(server_url, "one")


def client_of(server_url: str, key: str) -> OpenAI:
    return OpenAI(base_url=server_url, api_key=key, max_retries=0, timeout=TIMEOUT_S)


def test_an_answer_whole_and_streamed(client: OpenAI) -> None:
    whole = client.responses.create(input=QUESTION, **SETTINGS)
    assert "Paris" in whole.output_text
    assert whole.status == "completed"
    with client.responses.stream(input=QUESTION, **SETTINGS) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == whole.output_text


def test_a_tool_is_called_and_its_result_is_used(client: OpenAI) -> None:
    first = client.responses.create(input=WEATHER_QUESTION, tools=[TOOL], tool_choice="required", **SETTINGS)
    [call] = [item for item in first.output if item.type == "function_call"]
    assert (call.name, Place.model_validate_json(call.arguments)) == ("get_weather", Place(city="Paris"))
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": WEATHER_RESULT}
    fields: dict[str, Any] = {"tools": [TOOL], "tool_choice": "none", **SETTINGS}
    second = client.responses.create(input=[result], previous_response_id=first.id, **fields)
    assert "21" in second.output_text
    by_hand = client.responses.create(
        input=[{"role": "user", "content": WEATHER_QUESTION}, *first.output, result], **fields
    )
    assert by_hand.output_text == second.output_text


def test_an_answer_is_an_object_of_the_model(client: OpenAI) -> None:
    response = client.responses.parse(input=TRIP_QUESTION, text_format=Trip, **SETTINGS)
    assert response.output_parsed is not None
    check_trip(response.output_parsed)


def test_another_tenant_cannot_continue_a_response(client: OpenAI, server_url: str) -> None:
    response = client.responses.create(input=QUESTION, **SETTINGS)
    other = client_of(server_url, "two")
    with pytest.raises(openai.NotFoundError):
        other.responses.create(input="And of Italy?", previous_response_id=response.id, **SETTINGS)
    assert (
        "Rome"
        in client.responses.create(
            input="And of Italy? Answer in one word.", previous_response_id=response.id, **SETTINGS
        ).output_text
    )
