"""POST /v1/completions: prompts as text or token ids, choices to one response or to a stream of chunks."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from starlette.responses import JSONResponse, Response

from paceline.gateway.arrival import Arrival
from paceline.gateway.gateway import Gateway
from paceline.gateway.openai.call import Call
from paceline.gateway.openai.choices import Choice, ChunkUsage, speculation_of
from paceline.gateway.openai.engine_requests import check_token_ids
from paceline.gateway.openai.logprobs import completion_logprobs
from paceline.gateway.openai.schema import CompletionRequest
from paceline.gateway.openai.streaming import Chunks, EventStream


async def create_completion(gateway: Gateway, body: CompletionRequest, arrival: Arrival) -> Response:
    """Answers a checked request; raises ApiError or InvalidRequestError where it cannot be honoured."""
    gateway.model.check_name(body.model)
    model = await gateway.client.wait_ready()
    check_token_ids(body, model)
    with gateway.client.preparing(len(body.prompt) * body.num_choices):
        prompts = await gateway.model.encode_prompts(body.prompt, model, arrival.body_size_bytes)
        echoes = await gateway.model.texts_of(body.prompt if body.echo else (), arrival.body_size_bytes)
    call = await Call.start(gateway, body, arrival, "cmpl", prompts)
    if body.echo:
        for choice in call.choices:
            choice.text = echoes[choice.index // body.num_choices]
    if body.stream:
        return await EventStream.begin(_chunks(call, body))
    return JSONResponse(await _response(call))


async def _response(call: Call) -> dict[str, Any]:
    async with aclosing(call.outputs()) as outputs:
        async for _ in outputs:
            pass
    choices = [_response_choice(call, choice) for choice in call.choices]
    return {**call.envelope("text_completion"), "choices": choices, **call.totals()}


def _response_choice(call: Call, choice: Choice) -> dict[str, Any]:
    logprobs = completion_logprobs(call.tokenizer, choice.logprobs) if choice.has_logprobs else None
    return _choice(choice, choice.text, logprobs)


async def _chunks(call: Call, body: CompletionRequest) -> Chunks:
    """A chunk for each piece of text, the last of a choice with its finish reason; usage ends them all."""
    usage = ChunkUsage(has_usage_chunk=body.has_usage_chunk, has_usage_in_chunks=body.has_usage_in_chunks)
    envelope = call.envelope("text_completion")
    async with aclosing(call.outputs()) as outputs:
        async for choice, _ in outputs:
            text, new = choice.take_text(), choice.take_logprobs()
            logprobs = completion_logprobs(call.tokenizer, new) if new else None
            if text or logprobs or choice.finish_reason is not None:
                news = {"choices": [_choice(choice, text, logprobs)], **_last_words(choice)}
                yield {**envelope, **news, **usage.field(choice, choice.num_tokens)}
    if body.has_usage_chunk:
        yield {**envelope, "choices": [], **call.totals()}


def _last_words(choice: Choice) -> dict[str, Any]:
    return {} if choice.finish_reason is None else {"speculation": speculation_of([choice])}


def _choice(choice: Choice, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
    return {"index": choice.index, "text": text, "logprobs": logprobs, "finish_reason": choice.finish_reason}
