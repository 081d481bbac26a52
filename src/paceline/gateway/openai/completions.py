"""POST /v1/completions: answers a checked body with one response or with a stream of chunks."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from paceline.gateway.answer import Answer, Choice
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.http.context import Gateway
from paceline.gateway.http.streamed_response import SERVER_SENT_EVENTS, Chunks, StreamedResponse
from paceline.gateway.openai.generation_call import completion_call
from paceline.gateway.openai.logprobs import completion_logprobs
from paceline.gateway.openai.schema import CompletionRequest
from paceline.gateway.openai.usage import ChunkUsage, envelope_of, totals_of
from paceline.gateway.openai.whole_response import whole_response
from paceline.gateway.prompt_progress import progress_of
from paceline.gateway.speculation_summary import speculation_of


async def create_completion(gateway: Gateway, body: CompletionRequest, arrival: Arrival) -> Response:
    """Answers a checked request; raises what `GenerationService.begin` raises."""
    answer = await gateway.service.begin(completion_call(body, arrival))
    if body.stream:
        return await StreamedResponse.begin(_chunks(answer, body), SERVER_SENT_EVENTS, gateway.config.keep_alive_s)
    await answer.complete()
    return await whole_response(answer, "text_completion", _response_choice)


def _response_choice(choice: Choice) -> dict[str, Any]:
    return _choice(choice, choice.text, completion_logprobs(choice.logprobs) if choice.has_logprobs else None)


async def _chunks(answer: Answer, body: CompletionRequest) -> Chunks:
    """Yields a chunk for each piece of text. A choice's last chunk has its finish reason; usage comes last."""
    usage = ChunkUsage(has_usage_chunk=body.has_usage_chunk, has_usage_in_chunks=body.has_usage_in_chunks)
    envelope = envelope_of(answer, "text_completion")
    async with aclosing(answer.news()) as news:
        async for choice in news:
            if choice.num_read_tokens is not None:
                yield {**envelope, "choices": [], **progress_of(choice), **usage.field(choice, 0)}
                continue
            text, new = choice.take_text(), choice.take_logprobs()
            logprobs = completion_logprobs(new) if new else None
            if text or logprobs or choice.finish_reason is not None:
                parts = {"choices": [_choice(choice, text, logprobs)], **_last_words(choice)}
                yield {**envelope, **parts, **usage.field(choice, choice.num_tokens)}
    if body.has_usage_chunk:
        yield {**envelope, "choices": [], **totals_of(answer)}


def _last_words(choice: Choice) -> dict[str, Any]:
    return {} if choice.finish_reason is None else {"speculation": speculation_of([choice])}


def _choice(choice: Choice, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
    return {"index": choice.index, "text": text, "logprobs": logprobs, "finish_reason": choice.finish_reason}
