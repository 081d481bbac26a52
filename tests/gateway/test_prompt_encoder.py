"""Encoding of prompts: texts that cannot fit are refused without being encoded, and large ones never block the event
loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request as HttpRequest

from paceline.checkpoint import ResolvedModel
from paceline.config import ServerConfig
from paceline.core import Request, SpeculationParams
from paceline.core.errors import ContextOverflowError, InvalidRequestError
from paceline.core.messages import ModelInfo, ToEngine
from paceline.gateway.engines.call_preparer import CallPreparer
from paceline.gateway.engines.model_card import LoadedModel, ModelCard, load_model
from paceline.gateway.engines.process.client import EngineClient
from paceline.gateway.engines.process.replica import ProcessReplica
from paceline.gateway.engines.prompt_encoder import PromptEncoder
from paceline.gateway.errors import QueueFullError
from paceline.gateway.generation_call import Chat, GenerationCall
from paceline.gateway.http import routes
from paceline.gateway.http.arrival import arrival_of
from paceline.gateway.openai.schema import CompletionRequest
from paceline.gateway.principal import Principal
from paceline.observability import StatusBoard
from paceline.observability.status_board import EngineAdded
from paceline.tokenizer import Tokenizer
from tests.support.tiny_gguf import TinyPair

LARGE = 2**20
CARD = ModelCard(
    fingerprint="f",
    architecture="llama",
    num_parameters=1,
    quantization="F32",
    size_bytes=1,
    modified_s=0.0,
    sampling={},
    chat_template="",
    has_tools=False,
    has_infill=False,
    max_context_size=64,
)


class Recorder:
    """Records the calls of a tokenizer's methods: the sizes of the texts, and the threads in which they ran."""

    def __init__(self, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.threads: set[threading.Thread] = set()
        for name in ("encode", "render_chat", "decode"):
            monkeypatch.setattr(tokenizer, name, self._recorded(getattr(tokenizer, name)))

    def _recorded(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(text: Any, *args: Any, **options: Any) -> Any:
            self.sizes.append(len(text))
            self.threads.add(threading.current_thread())
            return method(text, *args, **options)

        return call


@pytest.fixture
def tokenizer(tiny_pair: TinyPair) -> Tokenizer:
    return load_model(ResolvedModel("tiny", tiny_pair.target), has_author_sampling=True).tokenizer


@pytest.fixture
def info(tokenizer: Tokenizer) -> ModelInfo:
    return ModelInfo(name="m", context_window_size=64, vocab_size=tokenizer.vocab_size)


def encoder(tokenizer: Any) -> PromptEncoder:
    ready = asyncio.get_running_loop().create_future()
    ready.set_result(LoadedModel(tokenizer, CARD))
    return PromptEncoder(ready)


def client(info: ModelInfo, max_queued_requests: int) -> EngineClient:
    board = StatusBoard()
    board.publish(EngineAdded("0", "m"))
    made = EngineClient("0", board, max_queued_requests=max_queued_requests, ready_timeout_s=5.0)
    sent: list[ToEngine] = []
    made.attach(0, info, sent.append)
    return made


@pytest.mark.parametrize("text", ["1" * 4_000_000, "the " * 10**6, "<|im_end|>" * 400_000], ids=lambda text: text[:3])
async def test_of_a_text_that_cannot_fit_little_is_encoded(
    text: str, tokenizer: Tokenizer, info: ModelInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tokenizer, monkeypatch)
    model = encoder(tokenizer)
    with pytest.raises(ContextOverflowError, match=r"the prompt has at least [0-9]+ tokens") as caught:
        await model.encode_prompts([text], info, len(text))
    assert (caught.value.param, caught.value.code) == ("prompt", "context_length_exceeded")
    assert sum(recorder.sizes) < 50_000
    recorder.sizes.clear()
    with pytest.raises(ContextOverflowError, match=r"the prompt has at least [0-9]+ tokens") as caught:
        await model.encode_chat(Chat([{"role": "user", "content": text}]), info, len(text))
    assert (caught.value.param, caught.value.code) == ("messages", "context_length_exceeded")
    assert sum(recorder.sizes) < 50_000


@pytest.mark.parametrize("size_bytes", [100, LARGE])
async def test_what_fits_is_encoded_as_ever(size_bytes: int, tokenizer: Tokenizer, info: ModelInfo) -> None:
    model = encoder(tokenizer)
    texts = ["the riders at the front", "hello world"]
    expected = [tokenizer.encode_prompt(text) for text in texts]
    assert await model.encode_prompts([*texts, [1, 2]], info, size_bytes) == [*expected, [1, 2]]
    assert await model.texts_of([texts[0], expected[1]], size_bytes) == texts
    messages = [{"role": "user", "content": texts[0]}]
    rendered = await model.encode_chat(Chat(messages), info, size_bytes)
    assert rendered.token_ids == tokenizer.encode_chat(messages)
    assert rendered.text == tokenizer.render_chat(messages)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [([1] * 64, "prompt has 64 tokens"), ([10**6], "token id 1000000"), ([], "no tokens"), ("a b " * 40, "prompt has")],
)
async def test_the_first_prompt_that_is_refused_ends_the_call(
    prompt: str | list[int], message: str, tokenizer: Tokenizer, info: ModelInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tokenizer, monkeypatch)
    with pytest.raises(InvalidRequestError, match=message):
        await encoder(tokenizer).encode_prompts([prompt, "never reached"], info, LARGE)
    assert len("never reached") not in recorder.sizes


async def test_a_large_body_is_encoded_beside_the_event_loop_however_small_its_parts(
    tokenizer: Tokenizer, info: ModelInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tokenizer, monkeypatch)
    model = encoder(tokenizer)
    await model.encode_prompts(["hello"] * 250, info, LARGE)
    await model.texts_of([[1, 2]] * 3, LARGE)
    await model.encode_chat(Chat([{"role": "user", "content": "", "name": "n"}] * 5), info, LARGE)
    assert len(recorder.sizes) == 250 + 3 + 2
    assert threading.current_thread() not in recorder.threads
    recorder.threads.clear()
    await model.encode_prompts(["hello"], info, 100)
    assert recorder.threads == {threading.current_thread()}


async def test_no_more_texts_are_encoded_at_once_than_there_are_cores(info: ModelInfo) -> None:
    """That holds even if clients disconnect, because an encoding that has begun cannot be stopped."""
    num_cores = len(os.sched_getaffinity(0))
    lock, release = threading.Lock(), threading.Event()
    running = most = 0

    def encode(text: str) -> list[int]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        release.wait(60)
        with lock:
            running -= 1
        return [1]

    model = encoder(SimpleNamespace(encode_prompt=encode, least_num_tokens=lambda text, enough: 1))
    calls = [asyncio.create_task(model.encode_prompts(["a"], info, LARGE)) for _ in range(3 * num_cores)]
    while running < num_cores:
        await asyncio.sleep(0.001)
    for call in calls[:num_cores]:
        call.cancel()
    await asyncio.sleep(0.05)
    assert running == num_cores
    release.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert results[num_cores:] == [[[1]]] * 2 * num_cores
    assert most == num_cores


async def test_slow_renderings_keep_no_thread_from_encoding(info: ModelInfo) -> None:
    release = threading.Event()

    def render(messages: list[Any], tools: None) -> str:
        release.wait(60)
        return messages[0]["content"]

    tokenizer = SimpleNamespace(
        render_chat=render,
        encode_rendered=lambda text: [len(text)],
        encode_prompt=lambda text: [1],
        least_num_tokens=lambda text, enough: 1,
    )
    model = encoder(tokenizer)
    messages = [{"role": "user", "content": "four"}]
    chats = [asyncio.create_task(model.encode_chat(Chat(messages), info, size)) for size in (LARGE, 100) * 20]
    await asyncio.sleep(0.05)
    assert await model.encode_prompts(["a", "b"], info, LARGE) == [[1], [1]]
    assert not any(chat.done() for chat in chats)
    release.set()
    assert [chat.token_ids for chat in await asyncio.gather(*chats)] == [[4]] * 40


@pytest.mark.parametrize(
    ("max_queued_requests", "kind", "message"),
    [(2, InvalidRequestError, "2 choices, not 3"), (3, QueueFullError, "1 requests are already waiting")],
)
async def test_the_queue_is_checked_before_anything_is_encoded(
    max_queued_requests: int,
    kind: type[Exception],
    message: str,
    tokenizer: Tokenizer,
    info: ModelInfo,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = Recorder(tokenizer, monkeypatch)
    engine = client(info, max_queued_requests)
    replica = ProcessReplica(
        "0",
        served_name="m",
        own_model_name="m",
        preparer=CallPreparer(encoder(tokenizer), ServerConfig()),
        client=engine,
        supervisor=None,
    )
    await engine.submit([Request(request_id="waits", prompt_token_ids=[1])], 0.0)
    chat = Chat([{"role": "user", "content": "a"}])
    for content, num_choices in ((["a", "b", "c"], 1), (chat, 3)):
        call = GenerationCall(
            call_id="call",
            model=None,
            input=content,
            num_choices=num_choices,
            sampling={},
            speculation=SpeculationParams(),
            principal=Principal(),
            arrival_s=0.0,
            size_bytes=LARGE,
        )
        with pytest.raises(kind, match=message):
            await replica.begin(call)
    assert recorder.sizes == []


@pytest.mark.parametrize(("size", "is_beside_the_loop"), [(10, False), (20_000, True)])
async def test_a_large_body_is_parsed_beside_the_event_loop(
    size: int, is_beside_the_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    parse_body = routes.parse_body

    def parse(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return parse_body(*args)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"prompt": "%s"}' % (b"a" * size)}

    monkeypatch.setattr(routes, "parse_body", parse)
    request = HttpRequest({"type": "http", "method": "POST", "headers": []}, receive)
    body = await routes._parsed(CompletionRequest, await request.body())
    assert body.prompt == ["a" * size]
    assert (threads != [threading.current_thread()]) == is_beside_the_loop
    assert (await arrival_of(request)).body_size_bytes == size + len('{"prompt": ""}')
