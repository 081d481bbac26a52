"""Ollama's official Python client: chats, prompts, tools, formats, gaps, models and errors."""

from __future__ import annotations

from typing import Any

import ollama
import pytest
from ollama import Client

from tests.clients.questions import TIMEOUT_S, TRIP_QUESTION, WEATHER_QUESTION, WEATHER_TOOL, Place, Trip, check_trip

OPTIONS = {"temperature": 0, "num_predict": 300}
QUESTION = [{"role": "user", "content": "Which is the capital of France? Answer in one word."}]


@pytest.fixture(scope="module")
def client(server_url: str) -> Client:
    return Client(host=server_url.removesuffix("/v1"), timeout=TIMEOUT_S)


def test_a_chat_whole_and_streamed(client: Client) -> None:
    whole = client.chat(model="default", messages=QUESTION, options=OPTIONS)
    assert "Paris" in (whole.message.content or "")
    assert whole.done_reason == "stop"
    *pieces, last = client.chat(model="default", messages=QUESTION, options=OPTIONS, stream=True)
    assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content
    assert (last.done, last.eval_count) == (True, whole.eval_count)


def test_a_prompt_whole_and_streamed(client: Client) -> None:
    fields: dict[str, Any] = {"model": "default:latest", "prompt": "Name one colour.", "options": OPTIONS}
    whole = client.generate(**fields)
    assert whole.response != ""
    assert "".join(piece.response for piece in client.generate(stream=True, **fields)) == whole.response


def test_the_model_fills_in_the_middle_of_code(client: Client) -> None:
    answer = client.generate(
        model="default",
        prompt="def add(first, second):\n    return ",
        suffix="\n\n\nassert add(1, 2) == 3\n",
        options={"temperature": 0, "num_predict": 20},
    )
    assert "first + second" in answer.response


def test_a_tool_is_called(client: Client) -> None:
    question = [{"role": "user", "content": WEATHER_QUESTION}]
    answer = client.chat(model="default", messages=question, tools=[WEATHER_TOOL], options=OPTIONS)
    [call] = answer.message.tool_calls or []
    assert call.function.name == "get_weather"
    assert Place(**call.function.arguments).city == "Paris"


def test_an_answer_has_the_format_of_a_model(client: Client) -> None:
    question = [{"role": "user", "content": TRIP_QUESTION}]
    answer = client.chat(model="default", messages=question, format=Trip.model_json_schema(), options=OPTIONS)
    check_trip(Trip.model_validate_json(answer.message.content or ""))


def test_models_are_listed_and_described(client: Client) -> None:
    [model] = client.list().models
    assert model.model is not None
    assert client.ps().models[0].model == model.model
    described = client.show(model.model)
    assert "tools" in (described.capabilities or [])
    assert "insert" in (described.capabilities or [])


def test_errors_are_those_of_the_client(client: Client) -> None:
    with pytest.raises(ollama.ResponseError, match="gpt-9") as caught:
        client.chat(model="gpt-9", messages=QUESTION)
    assert caught.value.status_code == 404
