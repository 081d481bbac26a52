"""The API of llama-server over HTTP, with a tiny model that has tokens for filling in text.

The model is random, so texts are compared with those of OpenAI's API for the same prompts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from paceline.config import EngineConfig, ServerConfig
from tests.gateway.server_process import PATIENCE_S, ServerProcess
from tests.support.tiny_gguf import write_tiny_pair

PROMPT = "the riders at the front"
PREFIX_ID, SUFFIX_ID, MIDDLE_ID, SEPARATOR_ID = 300, 301, 302, 303
METADATA = {
    "tokenizer.ggml.fim_pre_token_id": PREFIX_ID,
    "tokenizer.ggml.fim_suf_token_id": SUFFIX_ID,
    "tokenizer.ggml.fim_mid_token_id": MIDDLE_ID,
    "general.sampling.temp": 0.5,
    "general.sampling.top_k": 9,
    "general.sampling.top_p": 7.5,  # out of range, so it is left out
}
GREEDY = {"n_predict": 20, "temperature": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("infill")
    sizes: dict[str, Any] = {"hidden_size": 64, "head_dim": 16, "ffn_size": 128, "weight_type": "Q8_0"}
    pair = write_tiny_pair(directory, metadata=METADATA, **sizes)
    engine = EngineConfig(
        model=str(pair.target),
        draft_model=str(pair.draft),
        context_window_size=512,
        num_threads=1,
        max_batch_size=3,
        prefill_chunk_size=64,
    )
    with ServerProcess(directory, engine, ServerConfig(port=0)) as process:
        yield process.wait_ready()


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        yield client


def post(http: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    response = http.post(path, json=fields)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def stream(http: httpx.Client, path: str, **fields: Any) -> list[dict[str, Any]]:
    response = http.post(path, json={"stream": True, **fields})
    assert response.headers["content-type"].startswith("text/event-stream")
    return [json.loads(block.removeprefix("data: ")) for block in response.text.strip().split("\n\n")]


def openai(http: httpx.Client, **fields: Any) -> str:
    body = {"max_tokens": 20, "temperature": 0, **fields}
    text: str = post(http, "/v1/completions", **body)["choices"][0]["text"]
    return text


def tokens_of(http: httpx.Client, text: str) -> list[int]:
    found: list[int] = post(http, "/tokenize", content=text)["tokens"]
    return found


@pytest.mark.parametrize("path", ["/completion", "/completions"])
def test_a_completion_has_the_text_of_openais_whole_and_streamed(http: httpx.Client, path: str) -> None:
    expected = openai(http, prompt=PROMPT)
    answer = post(http, path, prompt=PROMPT, **GREEDY)
    assert (answer["content"], answer["stop"], answer["stop_type"]) == (expected, True, "limit")
    assert (answer["tokens_predicted"], answer["timings"]["predicted_n"]) == (20, 20)
    *pieces, last = stream(http, path, prompt=PROMPT, **GREEDY)
    assert "".join(piece["content"] for piece in pieces) == expected
    assert [piece["stop"] for piece in pieces] == [False] * len(pieces)
    assert (last["content"], last["stop"], last["stop_type"]) == ("", True, "limit")
    assert post(http, path, prompt=tokens_of(http, PROMPT), **GREEDY)["content"] == expected


def test_fields_are_honoured(http: httpx.Client) -> None:
    fields: dict[str, Any] = {"seed": 3, "temperature": 1.5, "top_k": 7, "top_p": 0.9}
    answer = post(http, "/completion", prompt=PROMPT, n_predict=20, repeat_penalty=1.2, **fields)["content"]
    assert answer == openai(http, prompt=PROMPT, repetition_penalty=1.2, **fields)
    stopped = post(http, "/completion", prompt=PROMPT, stop=[answer[3:5]], n_predict=20, repeat_penalty=1.2, **fields)
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", answer[3:5])
    first = tokens_of(http, openai(http, prompt=PROMPT))[0]
    banned = post(http, "/completion", prompt=PROMPT, logit_bias=[[first, False]], **GREEDY)["content"]
    assert banned == openai(http, prompt=PROMPT, logit_bias={str(first): -100})


def test_sampling_follows_the_models_author_where_a_request_says_nothing(http: httpx.Client) -> None:
    assert http.get("/v1/models").json()["data"][0]["default_sampling"] == {"temperature": 0.5, "top_k": 9}
    assert http.get("/props").json()["default_generation_settings"]["params"] == {"temperature": 0.5, "top_k": 9}
    silent = post(http, "/v1/completions", prompt=PROMPT, max_tokens=20, seed=4)["choices"][0]["text"]
    assert silent == openai(http, prompt=PROMPT, seed=4, temperature=0.5, top_k=9)
    assert silent != openai(http, prompt=PROMPT, seed=4, temperature=1.5)


def test_a_form_is_honoured(http: httpx.Client) -> None:
    assert post(http, "/completion", prompt="so", grammar='root ::= "on" | "off"')["content"] in ("on", "off")
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    schema["additionalProperties"] = False
    assert json.loads(post(http, "/completion", prompt="so", json_schema=schema)["content"])["a"] in (1, 2)


def test_a_gap_is_filled_with_the_prompt_of_the_models_tokens(http: httpx.Client) -> None:
    before, after, begun = "the rid", " front", "ers"
    prompt = [PREFIX_ID, *tokens_of(http, before), SUFFIX_ID, *tokens_of(http, after), MIDDLE_ID]
    gap = {"input_prefix": before, "input_suffix": after}
    assert post(http, "/infill", **gap, **GREEDY)["content"] == openai(http, prompt=prompt)
    continued = post(http, "/infill", **gap, prompt=begun, **GREEDY)["content"]
    assert continued == openai(http, prompt=[*prompt, *tokens_of(http, begun)])
    assert openai(http, prompt=before, suffix=after) == openai(http, prompt=prompt)
    generated = post(
        http, "/api/generate", prompt=before, suffix=after, stream=False, options={"temperature": 0, "num_predict": 20}
    )
    assert generated["response"] == openai(http, prompt=prompt)
    echoed = openai(http, prompt=before, suffix=after, echo=True)
    assert echoed == before + openai(http, prompt=prompt)


def test_an_editors_request_is_taken_as_it_is(http: httpx.Client) -> None:
    answer = post(
        http,
        "/infill",
        id_slot=0,
        input_prefix="def f():\n",
        input_suffix="\n",
        input_extra=[{"filename": "a.py", "text": "x = 1", "time": 17}],
        prompt="    re",
        n_predict=8,
        n_indent=4,
        top_k=40,
        top_p=0.9,
        samplers=["top_k", "top_p", "infill"],
        stream=False,
        cache_prompt=True,
        t_max_prompt_ms=500,
        t_max_predict_ms=1000,
        response_fields=["content", "timings/prompt_n", "timings/predicted_n", "tokens_cached", "nothing"],
    )
    assert set(answer) == {"content", "timings/prompt_n", "timings/predicted_n", "tokens_cached"}
    assert answer["timings/predicted_n"] == 8


def test_a_prompt_can_be_read_ahead_of_its_question(http: httpx.Client) -> None:
    text = "the riders at the front of the race " * 8
    assert post(http, "/completion", prompt=text, n_predict=0)["content"] == ""
    assert post(http, "/completion", prompt=text, n_predict=1)["timings"]["prompt_n"] <= 16


def test_a_stream_says_how_much_of_the_prompt_is_read_if_it_is_asked_to(http: httpx.Client) -> None:
    text = "the leaders of the chase " * 12
    num_tokens = len(tokens_of(http, text))
    fields: dict[str, Any] = {"prompt": text, "n_predict": 4, "temperature": 0}
    chunks = stream(http, "/completion", return_progress=True, **fields)
    progress = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    assert [one["processed"] for one in progress] == list(range(64, num_tokens, 64))
    assert {one["total"] for one in progress} == {num_tokens}
    assert "prompt_progress" not in chunks[-1]
    assert "prompt_progress" not in str(stream(http, "/completion", **{**fields, "prompt": f"x{text}"}))
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 4, "stream": True, "return_progress": True}
    answer = http.post("/v1/chat/completions", json=body).text
    assert '"prompt_progress":{"total":' in answer
    assert answer.endswith("data: [DONE]\n\n")


def test_texts_become_tokens_and_back(http: httpx.Client) -> None:
    text = "the riders é<|im_end|>"
    token_ids = tokens_of(http, text)
    assert post(http, "/detokenize", tokens=token_ids)["content"] == text
    plain = post(http, "/tokenize", content="<|im_end|>", parse_special=False)["tokens"]
    assert len(plain) > 1
    pieces = post(http, "/tokenize", content=text, with_pieces=True)["tokens"]
    assert [piece["id"] for piece in pieces] == token_ids
    spelled = [one["piece"].encode() if isinstance(one["piece"], str) else bytes(one["piece"]) for one in pieces]
    assert b"".join(spelled).decode() == text


def test_slots_and_properties_show_no_text(http: httpx.Client) -> None:
    post(http, "/completion", prompt="secret words", **GREEDY)
    shown = http.get("/slots")
    assert shown.json() == [{"id": index, "n_ctx": 512, "is_processing": False} for index in range(3)]
    assert http.get("/props").json()["total_slots"] == 3
    assert "secret" not in shown.text + http.get("/props").text


@pytest.mark.parametrize(
    ("path", "fields", "status", "word"),
    [
        ("/completion", {"prompt": [1, "a"]}, 400, "prompt"),
        ("/completion", {"prompt": "a", "mirostat": 2}, 400, "mirostat"),
        ("/completion", {"prompt": "a", "wish": 2}, 400, "wish"),
        ("/completion", {"prompt": "a", "grammar": "root ::=", "json_schema": {}}, 400, "json_schema"),
        ("/completion", {"prompt": "a", "model": "gpt-9"}, 404, "gpt-9"),
        ("/infill", {"input_prefix": "a"}, 400, "input_suffix"),
        ("/infill", {"input_prefix": "far " * 4000, "input_suffix": ""}, 400, "tokens"),
        ("/detokenize", {"tokens": [10**6]}, 400, "tokens"),
    ],
)
def test_errors_have_llama_servers_form(
    http: httpx.Client, path: str, fields: dict[str, Any], status: int, word: str
) -> None:
    response = http.post(path, json=fields)
    assert response.status_code == status
    error = response.json()["error"]
    assert error["code"] == status
    assert word in error["message"]


def test_an_echoed_prompt_has_logprobs_too(http: httpx.Client) -> None:
    fields = {"prompt": PROMPT, "max_tokens": 5, "temperature": 0, "logprobs": 2}
    plain = post(http, "/v1/completions", **fields)["choices"][0]
    echoed = post(http, "/v1/completions", echo=True, **fields)["choices"][0]
    assert echoed["text"] == PROMPT + plain["text"]
    logprobs = echoed["logprobs"]
    assert "".join(logprobs["tokens"]) == echoed["text"]
    assert logprobs["tokens"][-5:] == plain["logprobs"]["tokens"]
    assert logprobs["token_logprobs"][-5:] == plain["logprobs"]["token_logprobs"]
    assert logprobs["token_logprobs"][0] is logprobs["top_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:])
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert echoed["text"].startswith(token, offset)
    streamed = http.post("/v1/completions", json={**fields, "echo": True, "stream": True}).text
    chunks = [json.loads(block[6:]) for block in streamed.strip().split("\n\n") if "[DONE]" not in block]
    found = [one for chunk in chunks for one in (chunk["choices"][0]["logprobs"] or {"tokens": []})["tokens"]]
    assert found == logprobs["tokens"]
