"""LangChain's chat model for OpenAI's API: structured output, bound tools and streams."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

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


@pytest.fixture(scope="module")
def model(server_url: str) -> ChatOpenAI:
    return ChatOpenAI(
        model="default",
        base_url=server_url,
        api_key="unused",
        temperature=0,
        seed=1,
        max_completion_tokens=300,
        max_retries=0,
        timeout=TIMEOUT_S,
    )


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
@pytest.mark.parametrize("strict", [None, True])
def test_structured_output_is_an_object_whole_and_streamed(model: ChatOpenAI, method: Any, strict: bool | None) -> None:
    structured = model.with_structured_output(Trip, method=method, strict=strict)
    whole = structured.invoke(TRIP_QUESTION)
    assert isinstance(whole, Trip)
    check_trip(whole)
    assert list(structured.stream(TRIP_QUESTION))[-1] == whole


def test_any_tool_is_called_whole_and_streamed_and_its_result_is_used(model: ChatOpenAI) -> None:
    bound = model.bind_tools([WEATHER_TOOL], tool_choice="any")
    whole = bound.invoke(WEATHER_QUESTION)
    [call] = whole.tool_calls
    assert whole.invalid_tool_calls == []
    assert whole.response_metadata["finish_reason"] == "tool_calls"
    assert (call["name"], Place(**call["args"])) == ("get_weather", Place(city="Paris", unit="celsius"))
    streamed: Any = reduce(add, bound.stream(WEATHER_QUESTION))
    assert [(one["name"], one["args"]) for one in streamed.tool_calls] == [(call["name"], call["args"])]
    assert streamed.response_metadata["finish_reason"] == "tool_calls"
    result = ToolMessage(WEATHER_RESULT, tool_call_id=call["id"])
    assert WEATHER_RESULT in model.invoke([HumanMessage(WEATHER_QUESTION), whole, result]).text


def test_text_is_the_same_whole_and_streamed(model: ChatOpenAI) -> None:
    whole = model.invoke("Name the capital of France.")
    chunks = list(model.stream("Name the capital of France."))
    assert "Paris" in whole.text
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert len(chunks) > 3
