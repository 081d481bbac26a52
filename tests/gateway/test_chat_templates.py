"""Over HTTP, the contents of messages reach the model's chat template, and a slow template delays no other call."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from paceline.config import EngineConfig, ServerConfig
from tests.gateway.server_process import PATIENCE_S, ServerProcess
from tests.support.tiny_gguf import write_tiny_gguf

PARTS = "{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"
TEMPLATE = (
    "{% if attacks %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}"
    "{% if grows %}{{ 'x'.ljust(10 ** 12) }}{% endif %}"
    "{% for message in messages %}[{{ message.role }} {{ message.name }}]"
    "{% if message.role == 'system' %}{{ message.content + '' }}"
    "{% elif message.role == 'user' %}" + PARTS + "{% else %}"
    "{% if message.reasoning_content %}({{ message.reasoning_content }} {{ message.thinking }}){% endif %}"
    "{{ message.content }}{{ message.tool_calls | length }}{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Yields a client of a server whose model has this chat template."""
    directory = tmp_path_factory.mktemp("templates")
    with (
        ServerProcess(directory, _config(directory, TEMPLATE)) as process,
        httpx.Client(base_url=process.wait_ready().url, timeout=PATIENCE_S) as client,
    ):
        yield client


def _config(directory: Path, template: str) -> EngineConfig:
    path = write_tiny_gguf(
        directory / "model.gguf", "qwen2", "Q8_0", hidden_size=64, head_dim=16, ffn_size=128, chat_template=template
    )
    return EngineConfig(model=str(path), drafters=(), context_window_size=512, num_threads=1)


def _text(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def _chat(http: httpx.Client, messages: list[dict[str, Any]], **options: Any) -> httpx.Response:
    body = {"messages": messages, "max_tokens": 8, "temperature": 0, "chat_template_kwargs": options}
    return http.post("/v1/chat/completions", json=body)


def _answer(response: httpx.Response, of: str) -> tuple[str, int]:
    """Returns the text of an answer and the number of its prompt's tokens."""
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    text = choice["text"] if of == "completion" else choice["message"]["content"]
    return text, response.json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("messages", "prompt"),
    [
        ([("user", {"content": "one"})], "[user ]one"),
        ([("user", {"content": _text("one")})], "[user ]one"),
        ([("user", {"content": _text("one", "two")})], "[user ]onetwo"),
        ([("user", {"content": "one", "name": "Ann"})], "[user Ann]one"),
        ([("system", {"content": _text("one", "two")}), ("user", {"content": "x"})], "[system ]one\ntwo[user ]x"),
        ([("developer", {"content": "one"}), ("user", {"content": "x"})], "[system ]one[user ]x"),
        ([("assistant", {"content": "a", "reasoning": "r"})], "[assistant ](r r)a0"),
        ([("assistant", {"content": "a", "thinking": "r"})], "[assistant ](r r)a0"),
        ([("assistant", {"content": "a", "reasoning_content": "r", "thinking": None})], "[assistant ](r r)a0"),
        ([("assistant", {"content": "a", "reasoning_content": None, "reasoning": None})], "[assistant ]a0"),
        ([("assistant", {"content": _text("a", "b"), "tool_calls": None})], "[assistant ]a\nb0"),
        ([("tool", {"content": _text("a"), "tool_call_id": "c"})], "[tool ]a0"),
    ],
)
def test_messages_reach_the_template(
    http: httpx.Client, messages: list[tuple[str, dict[str, Any]]], prompt: str
) -> None:
    response = _chat(http, [{"role": role, **fields} for role, fields in messages])
    expected = http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 8, "temperature": 0})
    assert _answer(response, "chat") == _answer(expected, "completion")


def test_an_image_is_refused(http: httpx.Client) -> None:
    parts = [*_text("see"), {"type": "image_url", "image_url": {"url": "http://x"}}]
    response = _chat(http, [{"role": "user", "content": parts}])
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages[0].content"


def test_slow_templates_hold_up_no_other_call(http: httpx.Client) -> None:
    messages = [{"role": "user", "content": "one"}]
    message = "the model's chat template takes longer than 5 s for these messages; send fewer or shorter ones"
    with ThreadPoolExecutor() as pool:
        slow = [pool.submit(_chat, http, messages, attacks=True) for _ in range(3)]
        quick = _answer(_chat(http, messages), "chat")
        assert http.post("/v1/completions", json={"prompt": "a " * 9000}).status_code == 400
        assert not any(call.done() for call in slow)
        for response in (call.result() for call in slow):
            assert response.status_code == 400
            assert response.json()["error"]["message"] == message
            assert response.json()["error"]["param"] == "messages"
    assert _answer(_chat(http, messages), "chat") == quick


def test_a_template_that_wants_all_memory_is_the_requests_error(http: httpx.Client) -> None:
    response = _chat(http, [{"role": "user", "content": "one"}], grows=True)
    assert response.status_code == 400
    message = "the model's chat template does not accept these messages (MemoryError); change them"
    assert response.json()["error"]["message"] == message


def test_a_template_that_does_not_compile_ends_the_start(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, _config(tmp_path, "{% break %}"), ServerConfig(port=0)) as process:
        assert process.wait_for_end() == 1
    expected = (
        "CheckpointError: the model's chat template does not compile ('break' outside loop); use another model file"
    )
    assert process.log[-1].strip() == expected
    assert process.events("ready") == []
