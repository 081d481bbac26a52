"""Pydantic AI: agents whose output is an object, by a tool's call or by a JSON schema, and agents with tools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from tests.clients.questions import (
    TIMEOUT_S,
    TRIP_QUESTION,
    WEATHER_QUESTION,
    WEATHER_RESULT,
    Report,
    Trip,
    check_trip,
)

OUTPUTS: dict[str, Any] = {"tool": Trip, "native": NativeOutput(Trip)}


def agent_of(server_url: str, output_type: Any) -> Any:
    model = OpenAIChatModel("default", provider=OpenAIProvider(base_url=server_url, api_key="unused"))
    settings = ModelSettings(temperature=0, seed=1, max_tokens=300, timeout=TIMEOUT_S)
    return Agent(model, output_type=output_type, model_settings=settings, retries=0)


async def stream_outputs(agent: Any, question: str) -> list[Any]:
    """Returns every output that the stream shows, the final one last."""
    async with agent.run_stream(question) as result:
        outputs = [output async for output in result.stream_output(debounce_by=None)]
        return [*outputs, await result.get_output()]


@pytest.mark.parametrize("output_type", OUTPUTS.values(), ids=OUTPUTS)
def test_the_output_is_an_object_whole_and_streamed(server_url: str, output_type: Any) -> None:
    whole = asyncio.run(agent_of(server_url, output_type).run(TRIP_QUESTION))
    assert isinstance(whole.output, Trip)
    check_trip(whole.output)
    assert whole.usage.output_tokens > 0
    outputs = asyncio.run(stream_outputs(agent_of(server_url, output_type), TRIP_QUESTION))
    assert len(outputs) > 3
    assert outputs[-1] == whole.output


def test_text_is_the_same_whole_and_streamed(server_url: str) -> None:
    whole = asyncio.run(agent_of(server_url, str).run(TRIP_QUESTION))
    outputs = asyncio.run(stream_outputs(agent_of(server_url, str), TRIP_QUESTION))
    assert len(outputs) > 3
    assert outputs[-1] == whole.output


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_agent_runs_its_tool_and_uses_the_result(server_url: str, is_streamed: bool) -> None:
    agent = agent_of(server_url, Report)
    cities: list[str] = []

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Returns the current weather of a city."""
        cities.append(city)
        return WEATHER_RESULT

    if is_streamed:
        output = asyncio.run(stream_outputs(agent, WEATHER_QUESTION))[-1]
    else:
        output = asyncio.run(agent.run(WEATHER_QUESTION)).output
    assert cities == ["Paris"]
    assert isinstance(output, Report)
    assert output.city == "Paris"
