"""Ollama's API over HTTP, with a tiny model whose template shows tools.

The model is random, so texts are compared with those of OpenAI's API for the same prompts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest

from tests.gateway.server_process import PATIENCE_S, ServerProcess
from tests.gateway.tool_server import TEMPLATE, THINKING_TEMPLATE, serve

QUESTION = {"role": "user", "content": "how far is it?"}
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
CITY["additionalProperties"] = False
OPTIONS = {"temperature": 0, "num_predict": 40}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    yield from serve(tmp_path_factory.mktemp("tools"), TEMPLATE)


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        yield client


def whole(http: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    response = http.post(path, json={"options": OPTIONS, "stream": False, **fields})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def lines_of(http: httpx.Client, path: str, **fields: Any) -> list[dict[str, Any]]:
    response = http.post(path, json={"options": OPTIONS, **fields})
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


def openai(http: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    response = http.post(f"/v1/{path}", json={"max_tokens": 40, "temperature": 0, **fields})
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


def test_a_chat_has_the_text_of_the_chat_completion_whole_and_in_lines(http: httpx.Client) -> None:
    expected = openai(http, "chat/completions", messages=[QUESTION])["message"]["content"]
    answer = whole(http, "/api/chat", messages=[QUESTION])
    assert answer["message"] == {"role": "assistant", "content": expected}
    *pieces, last = lines_of(http, "/api/chat", messages=[QUESTION])
    assert "".join(piece["message"]["content"] for piece in pieces) == expected
    assert not any(piece["done"] for piece in pieces)
    for end in (answer, last):
        assert (end["done"], end["done_reason"], end["eval_count"]) == (True, "length", 40)
        assert end["total_duration"] >= end["prompt_eval_duration"] + end["eval_duration"] > 0
        assert datetime.fromisoformat(end["created_at"]).tzinfo is not None
    assert last["prompt_eval_count"] == answer["prompt_eval_count"] > 0


def test_generate_takes_a_prompt_for_the_template_or_a_raw_one(http: httpx.Client) -> None:
    system = {"role": "system", "content": "be short"}
    expected = openai(http, "chat/completions", messages=[system, QUESTION])["message"]["content"]
    prompt = {"prompt": QUESTION["content"], "system": system["content"]}
    assert whole(http, "/api/generate", **prompt)["response"] == expected
    assert "".join(line["response"] for line in lines_of(http, "/api/generate", **prompt)) == expected
    raw = whole(http, "/api/generate", prompt="the riders", raw=True)["response"]
    assert raw == openai(http, "completions", prompt="the riders")["text"]


def test_options_are_honoured(http: httpx.Client) -> None:
    options = {"seed": 5, "temperature": 1.5, "top_k": 7, "top_p": 0.9, "repeat_penalty": 1.2, "num_predict": 9}
    answer = whole(http, "/api/generate", prompt="the riders", raw=True, options=options)
    fields = {"seed": 5, "temperature": 1.5, "top_k": 7, "top_p": 0.9, "repetition_penalty": 1.2, "max_tokens": 9}
    assert answer["response"] == openai(http, "completions", prompt="the riders", **fields)["text"]
    stop = answer["response"][4:6]
    ended = whole(http, "/api/generate", prompt="the riders", raw=True, options={**options, "stop": [stop]})
    assert (ended["response"], ended["done_reason"]) == (
        answer["response"][: answer["response"].index(stop)],
        "stop",
    )


def test_the_answer_has_the_format_that_is_asked_for(http: httpx.Client) -> None:
    options = {"temperature": 0, "num_predict": 100}
    answer = whole(http, "/api/chat", messages=[QUESTION], format=CITY, options=options)
    assert json.loads(answer["message"]["content"])["city"] in ("Rome", "Oslo")
    some = whole(http, "/api/generate", prompt="a", format="json")
    assert some["response"].startswith("{")


def test_calls_and_results_go_back_into_the_template(http: httpx.Client) -> None:
    function = {"name": "distance", "arguments": {"city": "Rome"}}
    messages = [
        QUESTION,
        {"role": "assistant", "content": "let me see", "tool_calls": [{"function": function}]},
        {"role": "tool", "tool_name": "distance", "content": "1106 km"},
    ]
    call = {"type": "function", "function": {**function, "arguments": json.dumps(function["arguments"])}}
    expected = [
        QUESTION,
        {"role": "assistant", "content": "let me see", "tool_calls": [call]},
        {"role": "tool", "name": "distance", "content": "1106 km"},
    ]
    answer = whole(http, "/api/chat", messages=messages)
    assert answer["message"]["content"] == openai(http, "chat/completions", messages=expected)["message"]["content"]


def test_reasoning_is_a_field_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    for server in serve(tmp_path_factory.mktemp("thinking"), THINKING_TEMPLATE):
        with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
            answer = whole(http, "/api/chat", messages=[QUESTION], think=True)["message"]
            assert answer["content"] == ""
            assert answer["thinking"] != ""
            lines = lines_of(http, "/api/chat", messages=[QUESTION], think=True)
            assert "".join(line["message"].get("thinking", "") for line in lines) == answer["thinking"]
            short = whole(http, "/api/chat", messages=[QUESTION], think=False, format={"const": 1})
            assert short["message"] == {"role": "assistant", "content": "1"}


def test_models_are_listed_and_described(http: httpx.Client) -> None:
    (model,) = http.get("/api/tags").json()["models"]
    assert http.get("/v1/models").json()["data"][0]["id"] == model["name"] == model["model"]
    assert model["details"]["family"] == "qwen2"
    assert model["size"] > 0
    (running,) = http.get("/api/ps").json()["models"]
    assert running["context_length"] == 1024
    described = http.post("/api/show", json={"model": f"{model['name']}:latest"}).json()
    assert described["template"] == TEMPLATE
    assert described["capabilities"] == ["completion", "tools"]
    assert described["model_info"]["qwen2.context_length"] == 1024
    assert http.get("/api/version").json()["version"].count(".") == 2


def test_a_request_without_text_says_that_the_model_is_loaded(http: httpx.Client) -> None:
    for path in ("/api/chat", "/api/generate"):
        answer = whole(http, path, model="default:latest")
        assert (answer["done"], answer["done_reason"]) == (True, "load")


@pytest.mark.parametrize(
    ("path", "fields", "status", "word"),
    [
        ("/api/chat", {"messages": [QUESTION], "model": "gpt-9"}, 404, "gpt-9"),
        ("/api/chat", {"messages": [{**QUESTION, "images": ["aGk="]}]}, 400, "images"),
        ("/api/chat", {"messages": [QUESTION], "options": {"mirostat": 2}}, 400, "mirostat"),
        ("/api/chat", {"messages": [QUESTION], "options": {"magic": 2}}, 400, "magic"),
        ("/api/chat", {"messages": [QUESTION], "wish": 2}, 400, "wish"),
        ("/api/generate", {"prompt": "a", "template": "{{ x }}"}, 400, "template"),
        ("/api/generate", {"prompt": "a", "suffix": "b"}, 400, "suffix"),
        ("/api/generate", {"prompt": "far " * 4000}, 400, "tokens"),
        ("/api/show", {"model": "gpt-9"}, 404, "gpt-9"),
        ("/api/pull", {"model": "llama3"}, 404, "/api/pull"),
    ],
)
def test_errors_have_ollamas_form(
    http: httpx.Client, path: str, fields: dict[str, Any], status: int, word: str
) -> None:
    response = http.post(path, json=fields)
    assert response.status_code == status
    assert set(response.json()) == {"error"}
    assert word in response.json()["error"]
