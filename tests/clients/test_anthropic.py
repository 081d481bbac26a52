"""Anthropic's official Python client: messages, streams, tools, counting, errors, and tenants that share nothing."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from tests.clients.questions import TIMEOUT_S, WEATHER_QUESTION, WEATHER_RESULT, WEATHER_TOOL, Place

SETTINGS: dict[str, Any] = {"model": "default", "max_tokens": 100, "extra_body": {"temperature": 0}}
QUESTION = [{"role": "user", "content": "Which is the capital of France? Answer in one word."}]
FUNCTION = WEATHER_TOOL["function"]
TOOL = {
    "name": FUNCTION["name"],
    "description": FUNCTION["description"],
    "input_schema": FUNCTION["parameters"],
}


@pytest.fixture(scope="module")
def client(server_url: str) -> Anthropic:
    return client_of(server_url, "one")


def client_of(server_url: str, key: str) -> Anthropic:
    return Anthropic(base_url=server_url.removesuffix("/v1"), api_key=key, max_retries=0, timeout=TIMEOUT_S)


def test_an_answer_whole_and_streamed(client: Anthropic) -> None:
    whole = client.messages.create(messages=QUESTION, system="You are brief.", **SETTINGS)
    assert "Paris" in whole.content[0].text
    assert whole.stop_reason == "end_turn"
    with client.messages.stream(messages=QUESTION, system="You are brief.", **SETTINGS) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_a_tool_is_called_whole_and_streamed_and_its_result_is_used(client: Anthropic) -> None:
    question = {"role": "user", "content": WEATHER_QUESTION}
    fields: dict[str, Any] = {"tools": [TOOL], "tool_choice": {"type": "any"}, **SETTINGS}
    whole = client.messages.create(messages=[question], **fields)
    [call] = [block for block in whole.content if block.type == "tool_use"]
    assert whole.stop_reason == "tool_use"
    assert (call.name, Place(**call.input)) == ("get_weather", Place(city="Paris", unit="celsius"))
    with client.messages.stream(messages=[question], **fields) as stream:
        final = stream.get_final_message()
    [streamed] = [block for block in final.content if block.type == "tool_use"]
    assert (streamed.name, streamed.input) == (call.name, call.input)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": WEATHER_RESULT}
    turns = [question, {"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
    answer = client.messages.create(messages=turns, tools=[TOOL], tool_choice={"type": "none"}, **SETTINGS)
    assert "21" in answer.content[0].text


def test_tokens_are_counted(client: Anthropic) -> None:
    counted = client.messages.count_tokens(model="default", messages=QUESTION)
    usage = client.messages.create(messages=QUESTION, **SETTINGS).usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_errors_are_those_of_the_client(client: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="gpt-9"):
        client.messages.create(messages=QUESTION, **{**SETTINGS, "model": "gpt-9"})
    with pytest.raises(anthropic.BadRequestError, match="tool_choice"):
        client.messages.create(messages=QUESTION, tool_choice={"type": "any"}, **SETTINGS)


def test_two_tenants_share_no_prefix(server_url: str) -> None:
    long = [{"role": "user", "content": f"Count the words. {'red green blue ' * 60}"}]
    first, second = client_of(server_url, "tenant-one"), client_of(server_url, "tenant-two")
    fields = {**SETTINGS, "max_tokens": 2}
    assert first.messages.create(messages=long, **fields).usage.cache_read_input_tokens == 0
    assert first.messages.create(messages=long, **fields).usage.cache_read_input_tokens > 100
    assert second.messages.create(messages=long, **fields).usage.cache_read_input_tokens == 0
