"""POST /v1/chat/completions: answers a checked body with one response or with a stream of chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.responses import Response

from paceline.gateway.answer import Answer, Choice
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.http.context import Gateway
from paceline.gateway.http.streamed_response import SERVER_SENT_EVENTS, Chunk, Chunks, StreamedResponse
from paceline.gateway.openai.chat_message import CallNames, delta_of, message_of
from paceline.gateway.openai.generation_call import chat_call
from paceline.gateway.openai.logprobs import chat_logprobs
from paceline.gateway.openai.schema import ChatCompletionRequest
from paceline.gateway.openai.usage import ChunkUsage, envelope_of, totals_of
from paceline.gateway.openai.whole_response import whole_response
from paceline.gateway.prompt_progress import progress_of
from paceline.gateway.speculation_summary import speculation_of


async def create_chat_completion(gateway: Gateway, body: ChatCompletionRequest, arrival: Arrival) -> Response:
    """Answers a checked request; raises what `GenerationService.begin` raises."""
    answer = await gateway.service.begin(chat_call(body, arrival))
    names = CallNames.FUNCTIONS if body.functions else CallNames.TOOLS
    if body.stream:
        return await StreamedResponse.begin(
            _chunks(answer, body, names), SERVER_SENT_EVENTS, gateway.config.keep_alive_s
        )
    await answer.complete()
    return await whole_response(answer, "chat.completion", partial(_response_choice, names=names))


def _response_choice(choice: Choice, names: CallNames) -> dict[str, Any]:
    return {
        "index": choice.index,
        "message": message_of(choice.message, names),
        "logprobs": chat_logprobs(choice.logprobs) if choice.has_logprobs else None,
        "finish_reason": _finish_reason(choice, names),
    }


async def _chunks(answer: Answer, body: ChatCompletionRequest, names: CallNames) -> Chunks:
    """Yields for each choice a chunk with the role, chunks with parts of the message, and one with the finish reason;
    usage is last."""
    usage = ChunkUsage(has_usage_chunk=body.has_usage_chunk, has_usage_in_chunks=body.has_usage_in_chunks)
    envelope = envelope_of(answer, "chat.completion.chunk")
    content = None if body.all_tool_choice.is_required else ""
    begun: set[int] = set()
    async with aclosing(answer.news()) as news:
        async for choice in news:
            if choice.num_read_tokens is not None:
                yield {**envelope, "choices": [], **progress_of(choice), **usage.field(choice, 0)}
                continue
            if choice.index not in begun:
                begun.add(choice.index)
                first = _delta(choice, {"role": "assistant", "content": content})
                yield {**envelope, "choices": [first], **usage.field(choice, 0)}
            new = choice.take_logprobs()
            logprobs = chat_logprobs(new, has_drafted=body.has_drafted) if new else None
            for parts in _news(choice, names, logprobs):
                yield {**envelope, **parts, **usage.field(choice, choice.num_tokens)}
    if body.has_usage_chunk:
        yield {**envelope, "choices": [], **totals_of(answer)}


def _news(choice: Choice, names: CallNames, logprobs: dict[str, Any] | None) -> Iterator[Chunk]:
    """Yields a chunk for each new part. The first one has the new log-probabilities, which may also come alone."""
    for part in choice.take_parts():
        yield {"choices": [_delta(choice, delta_of(part, choice.message, names), logprobs)]}
        logprobs = None
    if logprobs is not None:
        yield {"choices": [_delta(choice, {"content": ""}, logprobs)]}
    if choice.finish_reason is not None:
        last = {**_delta(choice, {}), "finish_reason": _finish_reason(choice, names)}
        yield {"choices": [last], "speculation": speculation_of([choice])}


def _finish_reason(choice: Choice, names: CallNames) -> str | None:
    return names.finish_reason if choice.has_stopped_to_call else choice.finish_reason


def _delta(choice: Choice, delta: dict[str, Any], logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"index": choice.index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
