"""LiteLLM, which translates between APIs: it asks the same server through three of its fronts."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.clients.questions import TIMEOUT_S, WEATHER_QUESTION, WEATHER_TOOL, Place, user

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it downloads prices when it is imported
import litellm

FRONTS = {"openai/default": "/v1", "anthropic/default": "", "ollama_chat/default": ""}


def ask(server_url: str, front: str, question: str, **fields: Any) -> Any:
    base = server_url.removesuffix("/v1") + FRONTS[front]
    settings: dict[str, Any] = {"api_key": "unused", "temperature": 0, "max_tokens": 100, "timeout": TIMEOUT_S}
    return litellm.completion(front, messages=user(question), api_base=base, num_retries=0, **settings, **fields)


@pytest.mark.parametrize("front", FRONTS)
def test_an_answer_whole_and_streamed(server_url: str, front: str) -> None:
    question = "Which is the capital of France? Answer in one word."
    whole = ask(server_url, front, question).choices[0].message.content
    assert "Paris" in whole
    pieces = [chunk.choices[0].delta.content or "" for chunk in ask(server_url, front, question, stream=True)]
    assert "".join(pieces) == whole


@pytest.mark.parametrize("front", FRONTS)
def test_a_tool_is_called(server_url: str, front: str) -> None:
    [call] = ask(server_url, front, WEATHER_QUESTION, tools=[WEATHER_TOOL]).choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert Place.model_validate_json(call.function.arguments).city == "Paris"


@pytest.mark.parametrize("front", FRONTS)
def test_an_error_is_litellms(server_url: str, front: str) -> None:
    with pytest.raises((litellm.APIError, litellm.BadRequestError, litellm.APIConnectionError), match="limit of 1024"):
        ask(server_url, front, "hello", stop=["x" * 2000])
