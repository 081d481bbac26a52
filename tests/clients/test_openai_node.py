"""OpenAI's JavaScript client: `openai_node.mjs` asks, and these tests check the JSON that it prints."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.questions import (
    SETTINGS,
    TIMEOUT_S,
    TRIP_QUESTION,
    WEATHER_QUESTION,
    WEATHER_RESULT,
    WEATHER_TOOL,
    Place,
    Trip,
    check_trip,
    user,
)

SCRIPT = Path(__file__).with_name("openai_node.mjs")
TRIP_FORM = {"type": "json_schema", "json_schema": {"name": "trip", "schema": Trip.model_json_schema()}}
STRICT_WEATHER_TOOL = {"type": "function", "function": {**WEATHER_TOOL["function"], "strict": True}}


def ask(server_url: str, how: str, question: str, **fields: Any) -> Any:
    """Runs one function of the script and returns the value that it prints."""
    body = json.dumps({**SETTINGS, "messages": user(question), **fields})
    command = ["node", str(SCRIPT), server_url, how, body]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def called(message: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the names and the arguments of the message's calls."""
    return [(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]


def test_an_answer_in_a_form_is_the_same_parsed_streamed_and_raw(server_url: str) -> None:
    whole = ask(server_url, "parse", TRIP_QUESTION, response_format=TRIP_FORM)
    assert whole["finish_reason"] == "stop"
    trip = Trip.model_validate(whole["message"]["parsed"], strict=True)
    assert trip == Trip.model_validate_json(whole["message"]["content"])
    check_trip(trip)
    helped = ask(server_url, "stream", TRIP_QUESTION, response_format=TRIP_FORM)
    assert (helped["content"], helped["choice"]["finish_reason"]) == (whole["message"]["content"], "stop")
    assert helped["choice"]["message"]["content"] == whole["message"]["content"]
    usage = {"include_usage": True}
    chunks = ask(server_url, "chunks", TRIP_QUESTION, response_format=TRIP_FORM, stream_options=usage)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert len(deltas) > 3
    assert "".join(delta.get("content", "") for delta in deltas) == whole["message"]["content"]
    assert chunks[-1]["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("tool", [WEATHER_TOOL, STRICT_WEATHER_TOOL], ids=["lenient", "strict"])
def test_a_demanded_call_is_the_same_whole_and_streamed(server_url: str, tool: Any) -> None:
    fields: dict[str, Any] = {"tools": [tool], "tool_choice": "required"}
    whole = ask(server_url, "create", WEATHER_QUESTION, **fields)
    assert whole["finish_reason"] == "tool_calls"
    [(name, arguments)] = called(whole["message"])
    assert (name, Place.model_validate_json(arguments)) == ("get_weather", Place(city="Paris", unit="celsius"))
    helped = ask(server_url, "stream", WEATHER_QUESTION, **fields)
    assert helped["arguments"] == arguments
    assert called(helped["choice"]["message"]) == [(name, arguments)]
    assert helped["choice"]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_run_tools_runs_the_function_and_asks_again_with_its_result(server_url: str, is_streamed: bool) -> None:
    fields: dict[str, Any] = {"tools": [WEATHER_TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    ran = ask(server_url, "runTools", WEATHER_QUESTION, result=WEATHER_RESULT, stream=is_streamed, **fields)
    assert [Place(**place).city for place in ran["given"]] == ["Paris", "Paris"]
    messages = ran["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "tool"]
    for answer, result in (messages[1:3], messages[3:5]):
        assert result["tool_call_id"] == answer["tool_calls"][0]["id"]
        assert result["content"] == WEATHER_RESULT


def test_an_unsupported_keyword_is_a_400_that_names_it(server_url: str) -> None:
    schema = {"type": "object", "properties": {"city": {"not": {"const": "Rome"}}}, "required": ["city"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "trip", "strict": True, "schema": schema}}
    error = ask(server_url, "fail", TRIP_QUESTION, response_format=wanted)
    assert error["status"] == 400
    assert error["param"] == "response_format.json_schema.schema"
