"""POST /completion and /infill: answers checked bodies, whole or as a stream of events."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from paceline.core import FinishReason, SpeculationParams
from paceline.gateway.answer import Answer, Choice
from paceline.gateway.generation_call import GenerationCall, Infill, Input
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.http.context import Gateway
from paceline.gateway.http.json_response import JsonResponse
from paceline.gateway.http.streamed_response import (
    EVENT_STREAM_TYPE,
    KEEP_ALIVE_COMMENT,
    Chunks,
    StreamedResponse,
    StreamFormat,
    event,
)
from paceline.gateway.llama_server.errors import error_body
from paceline.gateway.llama_server.schema import GenerationFields, InfillRequest, NativeCompletionRequest
from paceline.gateway.prompt_progress import progress_of
from paceline.gateway.speculation_summary import speculation_of

EVENTS = StreamFormat(media_type=EVENT_STREAM_TYPE, encode=event, error_chunk=error_body, keep_alive=KEEP_ALIVE_COMMENT)


async def complete(gateway: Gateway, body: NativeCompletionRequest, arrival: Arrival) -> Response:
    """Continues a prompt; raises what `GenerationService.begin` raises."""
    return await _respond(gateway, body, arrival, [body.prompt])


async def infill(gateway: Gateway, body: InfillRequest, arrival: Arrival) -> Response:
    """Fills in the text between a prefix and a suffix; raises what `GenerationService.begin` raises."""
    files = tuple((file.filename, file.text) for file in body.input_extra)
    return await _respond(gateway, body, arrival, Infill(body.input_prefix, body.input_suffix, files, body.prompt))


async def _respond(gateway: Gateway, body: GenerationFields, arrival: Arrival, content: Input) -> Response:
    call = GenerationCall(
        call_id=f"completion-{uuid.uuid4().hex}",
        model=body.model,
        input=content,
        num_choices=1,
        sampling=body.sampling,
        speculation=SpeculationParams(),
        constraint=body.constraint,
        principal=arrival.principal,
        arrival_s=arrival.time_s,
        size_bytes=arrival.body_size_bytes,
        has_progress=bool(body.return_progress and body.stream),
    )
    answer = await gateway.service.begin(call)
    if body.stream:
        return await StreamedResponse.begin(_chunks(answer, body), EVENTS, gateway.config.keep_alive_s)
    clock = _Clock()
    async with aclosing(answer.news()) as news:
        async for _ in news:
            clock.tick()
    return JsonResponse(_selected(_last(answer, body, clock, answer.choices[0].text), body.response_fields))


async def _chunks(answer: Answer, body: GenerationFields) -> Chunks:
    """Yields a chunk for each piece of text, and one with the counts and the times."""
    (choice,) = answer.choices
    clock = _Clock()
    async with aclosing(answer.news()) as news:
        async for _ in news:
            if choice.num_read_tokens is not None:
                yield {"index": 0, "content": "", "stop": False, **progress_of(choice)}
                continue
            clock.tick()
            text = choice.take_text()
            if text and body.token_limit != 0:
                yield {"index": 0, "content": text, "tokens": [], "stop": False, "id_slot": 0, **_counts(choice)}
    yield _last(answer, body, clock, "")


class _Clock:
    """Measures when an answer began and when its first tokens came."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._first_s: float | None = None

    def tick(self) -> None:
        """Notes that tokens came."""
        self._first_s = self._first_s or time.monotonic()

    def timings(self, choice: Choice) -> dict[str, float]:
        """Returns llama-server's timings. Cached tokens of the prompt do not count as read."""
        first_s = self._first_s or time.monotonic()
        prompt_ms = 1000 * (first_s - self._began_s)
        predicted_ms = 1000 * (time.monotonic() - first_s)
        num_read = choice.num_prompt_tokens - choice.num_cached_tokens
        return {
            "prompt_n": num_read,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": prompt_ms / max(num_read, 1),
            "prompt_per_second": 1000 * num_read / max(prompt_ms, 0.001),
            "predicted_n": choice.num_tokens,
            "predicted_ms": predicted_ms,
            "predicted_per_token_ms": predicted_ms / max(choice.num_tokens, 1),
            "predicted_per_second": 1000 * choice.num_tokens / max(predicted_ms, 0.001),
            "draft_n": choice.speculation.num_draft_tokens,
            "draft_n_accepted": choice.speculation.num_accepted_tokens,
        }


def _last(answer: Answer, body: GenerationFields, clock: _Clock, text: str) -> dict[str, Any]:
    """Returns the whole answer, or the last chunk of a stream, whose text is empty."""
    (choice,) = answer.choices
    stop_type, word = _stop(choice)
    return {
        "index": 0,
        "content": "" if body.token_limit == 0 else text,
        "tokens": [],
        "id_slot": 0,
        "stop": True,
        "model": answer.model_name,
        **_counts(choice),
        "truncated": False,
        "stop_type": stop_type,
        "stopping_word": word,
        "tokens_cached": choice.num_prompt_tokens + choice.num_tokens,
        "timings": clock.timings(choice),
        "speculation": speculation_of([choice]),
    }


def _counts(choice: Choice) -> dict[str, int]:
    return {"tokens_predicted": choice.num_tokens, "tokens_evaluated": choice.num_prompt_tokens}


def _stop(choice: Choice) -> tuple[str, str]:
    """Returns why the answer ended in llama-server's words, and the stop string that ended it."""
    if choice.finish_reason is FinishReason.LENGTH:
        return "limit", ""
    return ("word", choice.stop_reason) if isinstance(choice.stop_reason, str) else ("eos", "")


def _selected(answer: Mapping[str, Any], fields: list[str] | None) -> dict[str, Any]:
    """Returns the fields that the client asks for, under the names by which it asks; `/` leads into an object."""
    if fields is None:
        return dict(answer)
    found: dict[str, Any] = {}
    for path in fields:
        value: Any = answer
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            found[path] = value
    return found
