"""Runs OpenAI's official client against a real server: every field does what its documentation says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from paceline.checkpoint import GgufFile
from paceline.tokenizer import Tokenizer
from tests.gateway.server_process import PATIENCE_S, ServerProcess
from tests.support.tiny_gguf import TinyPair

MESSAGES: Any = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the front of the line"}]
PROMPT = "the riders at the front of the line"


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def tokenizer(tiny_pair: TinyPair, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    cache: Path = tmp_path_factory.mktemp("cache")
    with GgufFile.open(tiny_pair.target) as gguf:
        return Tokenizer.from_gguf(gguf, cache)


def chat(client: OpenAI, **fields: Any) -> Any:
    settings = {"model": "default", "messages": MESSAGES, "max_tokens": 24, "seed": 7, **fields}
    return client.chat.completions.create(**settings)


def complete(client: OpenAI, **fields: Any) -> Any:
    settings = {"model": "default", "prompt": PROMPT, "max_tokens": 24, "seed": 7, **fields}
    return client.completions.create(**settings)


def text_of(client: OpenAI, **fields: Any) -> str:
    text: str = complete(client, **fields).choices[0].text
    return text


def test_a_chat_answer_is_complete(client: OpenAI, server: ServerProcess) -> None:
    answer = chat(client, temperature=0)
    assert answer.id.startswith("chatcmpl-")
    assert (answer.object, answer.model) == ("chat.completion", client.models.list().data[0].id)
    (choice,) = answer.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "length", None)
    assert choice.message.role == "assistant"
    assert choice.message.content != ""
    assert answer.usage.completion_tokens == 24
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 24


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_streamed_chat_answer_is_the_same(client: OpenAI, temperature: float) -> None:
    whole = chat(client, temperature=temperature)
    chunks = list(chat(client, temperature=temperature, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == whole.choices[0].message.content
    reasons = [chunk.choices[0].finish_reason for chunk in chunks[:-1]]
    assert reasons == [None] * (len(chunks) - 2) + ["length"]
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    usage, expected = chunks[-1].usage, whole.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (expected.prompt_tokens, expected.completion_tokens)


@pytest.mark.parametrize("ask", [chat, complete])
def test_every_chunk_says_what_was_used_so_far(client: OpenAI, ask: Any) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    expected = ask(client, temperature=0).usage
    chunks = list(ask(client, temperature=0, stream=True, stream_options=options))
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-2:] == [24, 24]
    assert {chunk.usage.prompt_tokens for chunk in chunks} == {expected.prompt_tokens}
    assert all(
        chunk.usage.total_tokens == expected.prompt_tokens + count for chunk, count in zip(chunks, counts, strict=True)
    )
    without = list(ask(client, temperature=0, stream=True, stream_options={**options, "include_usage": False}))
    assert all(chunk.usage is None for chunk in without)


def test_a_stream_without_the_option_has_no_usage(client: OpenAI) -> None:
    chunks = list(chat(client, stream=True))
    assert all(chunk.usage is None and len(chunk.choices) == 1 for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "length"


async def test_the_asynchronous_client_gets_the_same_from_a_busy_server(client: OpenAI, server: ServerProcess) -> None:
    prompts = [f"{PROMPT} {number}" for number in range(8)]
    alone = [text_of(client, prompt=prompt) for prompt in prompts]
    async with AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE_S
    ) as asynchronous:

        async def streamed(prompt: str) -> str:
            chunks = await asynchronous.completions.create(
                model="default", prompt=prompt, max_tokens=24, seed=7, stream=True
            )
            return "".join([chunk.choices[0].text async for chunk in chunks])

        assert await asyncio.gather(*map(streamed, prompts)) == alone
        answer = await asynchronous.chat.completions.create(
            model="default", messages=MESSAGES, max_tokens=24, seed=7, temperature=0
        )
    assert answer.choices[0].message.content == chat(client, temperature=0).choices[0].message.content


def test_every_form_of_a_prompt_gives_the_same_text(client: OpenAI, tokenizer: Tokenizer) -> None:
    token_ids = tokenizer.encode_prompt(PROMPT)
    other = "user hello world"
    expected = [text_of(client), text_of(client, prompt=other)]
    assert text_of(client, prompt=token_ids) == expected[0]
    for prompts in ([PROMPT, other], [token_ids, tokenizer.encode_prompt(other)]):
        answer = complete(client, prompt=prompts)
        assert [choice.index for choice in answer.choices] == [0, 1]
        assert [choice.text for choice in answer.choices] == expected
    assert answer.usage.prompt_tokens == len(token_ids) + len(tokenizer.encode_prompt(other))
    assert answer.usage.completion_tokens == 48


def test_choices_differ_and_are_reproduced_by_the_seed(client: OpenAI) -> None:
    texts = [choice.text for choice in complete(client, n=3).choices]
    assert len(set(texts)) == 3
    assert [choice.text for choice in complete(client, n=3).choices] == texts
    assert text_of(client) == texts[0]
    streamed = ["", "", ""]
    for chunk in complete(client, n=3, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == texts
    assert complete(client, n=3).usage.prompt_tokens == complete(client).usage.prompt_tokens


def test_without_a_seed_texts_differ(client: OpenAI) -> None:
    texts = {client.completions.create(model="default", prompt=PROMPT, max_tokens=24).choices[0].text for _ in range(4)}
    assert len(texts) == 4


def test_default_lengths(client: OpenAI) -> None:
    assert client.completions.create(model="default", prompt=PROMPT).usage.completion_tokens == 16  # type: ignore[union-attr]
    answer = chat(client, max_tokens=None, extra_body={"ignore_eos": True})
    assert answer.usage.total_tokens == 256
    assert answer.choices[0].finish_reason == "length"


def test_the_newer_name_of_max_tokens(client: OpenAI) -> None:
    assert chat(client, max_tokens=openai.omit, max_completion_tokens=5).usage.completion_tokens == 5


def test_stop_strings_end_the_text(client: OpenAI) -> None:
    text = text_of(client, temperature=0)
    stop = text[4:7]
    end = text.index(stop)
    answer = complete(client, temperature=0, stop=["never seen", stop])
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (text[:end], "stop")
    with_stop = complete(client, temperature=0, stop=stop, extra_body={"include_stop_str_in_output": True})
    assert with_stop.choices[0].text == text[:end] + stop
    streamed = "".join(chunk.choices[0].text for chunk in complete(client, temperature=0, stop=stop, stream=True))
    assert streamed == text[:end]


def test_bias_and_stop_tokens(client: OpenAI, tokenizer: Tokenizer) -> None:
    (token_id,) = tokenizer.encode("a", parse_special=False)
    forced = {"logit_bias": {str(token_id): 100}, "temperature": 0}
    assert text_of(client, **forced) == "a" * 24
    stopped = complete(client, **forced, extra_body={"stop_token_ids": [token_id]})
    assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == ("", "stop")
    later = complete(client, **forced, extra_body={"stop_token_ids": [token_id], "min_tokens": 5})
    assert later.usage.completion_tokens >= 6
    first = complete(client, temperature=0, logprobs=1).choices[0].logprobs.tokens[0]
    banned = {str(one): -100 for one in range(384) if tokenizer.token_bytes(one).decode(errors="replace") == first}
    other = complete(client, temperature=0, logprobs=1, logit_bias=banned).choices[0].logprobs.tokens[0]
    assert first != other


def test_end_of_sequence_and_ignoring_it(client: OpenAI, tokenizer: Tokenizer) -> None:
    forced = {"logit_bias": {str(min(tokenizer.eos_token_ids)): 100}, "temperature": 0}
    ended = complete(client, **forced)
    assert (ended.choices[0].text, ended.choices[0].finish_reason) == ("", "stop")
    ignored = complete(client, **forced, extra_body={"ignore_eos": True})
    assert (ignored.usage.completion_tokens, ignored.choices[0].finish_reason) == (24, "length")


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"top_p": 0.3},
        {"presence_penalty": 2},
        {"frequency_penalty": 2},
        {"extra_body": {"top_k": 1}},
        {"extra_body": {"min_p": 0.9}},
        {"extra_body": {"repetition_penalty": 1.8}},
        {"seed": 8},
    ],
)
def test_sampling_fields_change_the_text_and_are_reproducible(client: OpenAI, fields: dict[str, Any]) -> None:
    text = text_of(client, **{"max_tokens": 64, **fields})
    assert text == text_of(client, **{"max_tokens": 64, **fields})
    assert text != text_of(client, max_tokens=64)


def test_top_k_of_one_is_greedy(client: OpenAI) -> None:
    assert text_of(client, extra_body={"top_k": 1}) == text_of(client, temperature=0)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_chat_logprobs(client: OpenAI, is_streamed: bool) -> None:
    fields = {"temperature": 0, "logprobs": True, "top_logprobs": 3}
    if is_streamed:
        choices = [chunk.choices[0] for chunk in chat(client, stream=True, **fields)]
        entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content]
        text = "".join(choice.delta.content or "" for choice in choices)
    else:
        (choice,) = chat(client, **fields).choices
        entries, text = choice.logprobs.content, choice.message.content
    assert len(entries) == 24
    assert b"".join(bytes(entry.bytes) for entry in entries).decode(errors="replace") == text
    for entry in entries:
        assert len(entry.top_logprobs) == 3
        assert entry.token == bytes(entry.bytes).decode(errors="replace")
        assert entry.logprob == entry.top_logprobs[0].logprob <= 0
        values = [one.logprob for one in entry.top_logprobs]
        assert values == sorted(values, reverse=True)


def test_chat_logprobs_without_alternatives(client: OpenAI) -> None:
    (choice,) = chat(client, logprobs=True).choices
    assert [entry.top_logprobs for entry in choice.logprobs.content] == [[]] * 24


@pytest.mark.parametrize("is_streamed", [False, True])
def test_completion_logprobs(client: OpenAI, is_streamed: bool) -> None:
    fields: dict[str, Any] = {"temperature": 0, "logprobs": 2}
    chunks = list(complete(client, stream=True, **fields)) if is_streamed else [complete(client, **fields)]
    parts = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].logprobs]
    tokens = [token for part in parts for token in part.tokens]
    offsets = [offset for part in parts for offset in part.text_offset]
    assert len(tokens) == 24
    text = "".join(chunk.choices[0].text for chunk in chunks)
    assert text.isascii()
    assert [text[offset : offset + len(token)] for token, offset in zip(tokens, offsets, strict=True)] == tokens
    for part in parts:
        for token, logprob, top in zip(part.tokens, part.token_logprobs, part.top_logprobs, strict=True):
            assert top[token] == logprob == max(top.values())


@pytest.mark.parametrize("is_streamed", [False, True])
def test_logprobs_end_with_the_content(client: OpenAI, is_streamed: bool) -> None:
    whole = chat(client, temperature=0).choices[0].message.content
    fields: dict[str, Any] = {"temperature": 0, "logprobs": True, "stop": whole[9:13]}
    if is_streamed:
        choices = [chunk.choices[0] for chunk in chat(client, stream=True, **fields)]
        entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content]
        content = "".join(choice.delta.content or "" for choice in choices)
    else:
        (choice,) = chat(client, **fields).choices
        entries, content = choice.logprobs.content, choice.message.content
    assert content == whole[: whole.index(whole[9:13])]
    texts = [bytes(entry.bytes).decode() for entry in entries]
    assert "".join(texts).startswith(content)
    assert len("".join(texts[:-1])) < len(content)


def test_echo_puts_the_prompt_first(client: OpenAI, tokenizer: Tokenizer) -> None:
    text = text_of(client)
    assert text_of(client, echo=True) == PROMPT + text
    assert text_of(client, echo=True, prompt=tokenizer.encode_prompt(PROMPT)) == PROMPT + text
    assert "".join(chunk.choices[0].text for chunk in complete(client, echo=True, stream=True)) == PROMPT + text


def test_speculation_is_reported_and_changes_nothing(client: OpenAI) -> None:
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 100}
    fast = complete(client, **fields, extra_body={"ignore_eos": True})
    plain = complete(client, **fields, extra_body={"ignore_eos": True, "speculation": {"mode": "off"}})
    short = complete(client, **fields, extra_body={"ignore_eos": True, "speculation": {"max_window": 1}})
    assert fast.choices[0].text == plain.choices[0].text == short.choices[0].text
    assert (plain.speculation["drafted"], plain.speculation["steps"], plain.speculation["by_drafter"]) == (0, 100, {})
    assert (plain.speculation["reason"], fast.speculation["reason"]) == ("request", None)
    named = {"ignore_eos": True, "speculation": {"drafters": ["ngram"]}}
    assert set(complete(client, **fields, extra_body=named).speculation["by_drafter"]) <= {"ngram"}
    report = fast.speculation
    assert 0 < report["accepted"] <= report["drafted"]
    assert report["steps"] < 100
    assert report["tokens_per_step"] == round(100 / report["steps"], 3)
    assert sum(one["drafted"] for one in report["by_drafter"].values()) == report["drafted"]
    assert 0 < short.speculation["drafted"] <= short.speculation["steps"]
    last = list(chat(client, stream=True))[-1]
    assert last.speculation["steps"] > 0


def test_the_prefix_cache_is_reported(client: OpenAI) -> None:
    prompt = "what is this and why does that work in this way with the same answer every time"
    fields = {"prompt": prompt, "temperature": 0}
    first, second = complete(client, **fields), complete(client, **fields)
    assert second.usage.prompt_tokens_details.cached_tokens > 0
    assert second.usage.prompt_tokens_details.cached_tokens < second.usage.prompt_tokens
    assert first.choices[0].text == second.choices[0].text


def test_fields_that_cannot_change_the_text(client: OpenAI) -> None:
    answer = chat(
        client,
        user="u",
        metadata={"a": "b"},
        store=False,
        service_tier="auto",
        parallel_tool_calls=True,
        response_format={"type": "text"},
        tool_choice="none",
        prompt_cache_key="k",
        safety_identifier="s",
    )
    assert answer.choices[0].message.content == chat(client).choices[0].message.content


def test_developer_is_system_and_text_parts_are_text(client: OpenAI) -> None:
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": MESSAGES[0]["content"]}]},
        {"role": "user", "content": MESSAGES[1]["content"]},
    ]
    assert chat(client, messages=messages).choices[0].message.content == chat(client).choices[0].message.content


def test_models(client: OpenAI, tiny_pair: TinyPair) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object, model.owned_by) == (tiny_pair.target.stem, "model", "paceline")
    assert client.models.retrieve(model.id) == model == client.models.retrieve("default")
    assert chat(client, model=model.id).model == model.id
    with pytest.raises(openai.NotFoundError) as caught:
        chat(client, model="gpt-4")
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"max_tokens": -1}, "max_tokens", "invalid_value"),
        ({"temperature": 101}, "temperature", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "unsupported_tools"),
        ({"extra_body": {"mood": "good"}}, "mood", "unknown_parameter"),
        ({"logit_bias": {"999999": 1}}, "logit_bias", "invalid_value"),
        ({"messages": [{"role": "user", "content": "the " * 500}]}, "messages", "context_length_exceeded"),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_errors_name_the_field(client: OpenAI, is_streamed: bool, fields: Any, param: str, code: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, stream=is_streamed, **fields)
    assert (caught.value.param, caught.value.code, caught.value.type) == (param, code, "invalid_request_error")


def test_a_prompt_that_fills_the_context_leaves_one_token(client: OpenAI) -> None:
    answer = complete(client, prompt=[65] * 255)
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (1, "length")
    with pytest.raises(openai.BadRequestError, match="256"):
        complete(client, prompt=[65] * 256)
