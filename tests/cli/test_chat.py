"""Tests conversations as users have them: what is remembered, what is refused, and which messages are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline import Engine, EngineConfig, SamplingParams
from tests.cli.conftest import RunCommand, RunOnBytes
from tests.support.tiny_gguf import TinyPair, write_tiny_gguf

CONTEXT = 96
LONG = "x" * 300
WITHOUT_SYSTEM = (
    "{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ raise_exception('no system messages') }}{% endif %}{{ message['content'] }}{% endfor %}"
)


def expected_answers(tiny_pair: TinyPair, questions: list[str], max_tokens: int) -> list[str]:
    """Returns the answers of a conversation with only these questions."""
    engine = Engine(EngineConfig(model=str(tiny_pair.target), drafters=(), context_window_size=CONTEXT))
    messages: list[dict[str, str]] = []
    for question in questions:
        messages.append({"role": "user", "content": question})
        token_ids = engine.tokenizer.encode_chat(messages)
        text = engine.generate([token_ids], SamplingParams(max_tokens=max_tokens, temperature=0.0))[0].text
        messages.append({"role": "assistant", "content": text})
    return [message["content"] for message in messages if message["role"] == "assistant"]


def chat(paceline: RunCommand, tiny_pair: TinyPair, stdin: str, max_tokens: int):
    options = ("--max-tokens", max_tokens, "--context-window-size", CONTEXT, "--drafters", "none")
    return paceline("chat", tiny_pair.target, *options, stdin=stdin)


def test_a_question_without_room_leaves_the_conversation_as_it_was(paceline: RunCommand, tiny_pair: TinyPair) -> None:
    first, second = expected_answers(tiny_pair, ["hello", "more"], max_tokens=4)
    result = chat(paceline, tiny_pair, f"hello\n{LONG}\nmore\n", max_tokens=4)
    assert result.stdout == f"> {first}\n> > {second}\n> \n"
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert f"no room for an answer in the context window of {CONTEXT} tokens" in errors[0]
    assert errors[0].endswith("; the question is left out")
    assert result.returncode == 1  # a question was not answered


def test_a_question_that_is_no_text_is_left_out(paceline_on_bytes: RunOnBytes, tiny_pair: TinyPair) -> None:
    options = ("--max-tokens", 4, "--context-window-size", CONTEXT, "--drafters", "none")
    first, second = expected_answers(tiny_pair, ["hello", "more"], max_tokens=4)
    result = paceline_on_bytes("chat", tiny_pair.target, *options, stdin=b"hello\nab\xff\nmore\n")
    assert result.stdout == f"> {first}\n> > {second}\n> \n".encode()
    assert b"error: the question is not UTF-8 text from character 2 on" in result.stderr
    assert result.returncode == 1


def test_an_answer_that_is_cut_off_says_why(paceline: RunCommand, tiny_pair: TinyPair) -> None:
    short = chat(paceline, tiny_pair, "hello\n", max_tokens=4)
    assert short.stderr == "note: the answer was cut off after 4 tokens; raise --max-tokens for longer ones\n"
    full = chat(paceline, tiny_pair, "hello\n", max_tokens=1000)
    assert full.stderr == f"note: the answer was cut off, because the context window of {CONTEXT} tokens is full\n"
    assert full.stdout == f"> {expected_answers(tiny_pair, ['hello'], max_tokens=1000)[0]}\n> \n"
    assert short.returncode == full.returncode == 0


def test_a_model_without_a_chat_template_is_refused_before_the_first_question(
    paceline: RunCommand, tmp_path: Path
) -> None:
    model = write_tiny_gguf(tmp_path / "plain.gguf", "qwen2", "Q4_K", chat_template=None)
    result = paceline("chat", model, stdin="hello\n")
    assert result.returncode == 2
    assert result.stdout == ""
    advice = f"continue a text with: paceline generate --raw {model} PROMPT"
    assert result.stderr == f"error: plain has no chat template; {advice}\n"
    assert paceline("generate", "--raw", model, "hello", "--max-tokens", 2).returncode == 0


@pytest.mark.parametrize("command", [("chat",), ("generate", "hello")])
def test_a_template_that_takes_no_system_message_says_so_before_the_first_question(
    command: tuple[str, ...], paceline: RunCommand, tmp_path: Path
) -> None:
    model = write_tiny_gguf(tmp_path / "short.gguf", "qwen2", "Q4_K", chat_template=WITHOUT_SYSTEM)
    name, *prompt = command
    result = paceline(name, model, *prompt, "--system", "be short", stdin="hello\n")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: the model's chat template does not accept these messages")
    assert "no system messages" in result.stderr
    assert paceline(name, model, *prompt, "--max-tokens", 2, stdin="hello\n").returncode == 0
