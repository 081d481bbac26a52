"""POST /v1/chat/completions: messages to prompt, choices to one response or to a stream of chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

from starlette.responses import JSONResponse, Response

from paceline.gateway.arrival import Arrival
from paceline.gateway.gateway import Gateway
from paceline.gateway.openai.call import Call
from paceline.gateway.openai.choices import Choice, ChunkUsage, speculation_of
from paceline.gateway.openai.engine_requests import check_token_ids
from paceline.gateway.openai.logprobs import chat_logprobs
from paceline.gateway.openai.schema import ChatCompletionRequest, ChatMessage
from paceline.gateway.openai.streaming import Chunk, Chunks, EventStream
from paceline.gateway.served_model import check_num_messages


async def create_chat_completion(gateway: Gateway, body: ChatCompletionRequest, arrival: Arrival) -> Response:
    """Answers a checked request; raises ApiError or InvalidRequestError where it cannot be honoured."""
    gateway.model.check_name(body.model)
    model = await gateway.client.wait_ready()
    check_token_ids(body, model)
    check_num_messages(len(body.messages), model)
    messages = map(_template_message, body.messages)
    with gateway.client.preparing(body.num_choices):
        options = body.chat_template_kwargs or {}
        prompt = await gateway.model.encode_chat(messages, options, model, arrival.body_size_bytes)
    call = await Call.start(gateway, body, arrival, "chatcmpl", [prompt])
    if body.stream:
        return await EventStream.begin(_chunks(call, body))
    return JSONResponse(await _response(call))


def _template_message(message: ChatMessage) -> dict[str, object]:
    """The message for the template, where a value of None means that there is none."""
    return {
        "role": "system" if message.role == "developer" else message.role,
        "content": message.content,
        "name": message.name,
        "tool_call_id": message.tool_call_id,
        "reasoning_content": message.reasoning_content,
        "reasoning": message.reasoning,
        "thinking": message.thinking,
    }


async def _response(call: Call) -> dict[str, Any]:
    async with aclosing(call.outputs()) as outputs:
        async for _ in outputs:
            pass
    choices = [_response_choice(call, choice) for choice in call.choices]
    return {**call.envelope("chat.completion"), "choices": choices, **call.totals()}


def _response_choice(call: Call, choice: Choice) -> dict[str, Any]:
    return {
        "index": choice.index,
        "message": {"role": "assistant", "content": choice.text, "refusal": None},
        "logprobs": chat_logprobs(call.tokenizer, choice.logprobs) if choice.has_logprobs else None,
        "finish_reason": choice.finish_reason,
    }


async def _chunks(call: Call, body: ChatCompletionRequest) -> Chunks:
    """For each choice a chunk with the role, chunks of text, and one with the finish reason; usage ends them all."""
    usage = ChunkUsage(has_usage_chunk=body.has_usage_chunk, has_usage_in_chunks=body.has_usage_in_chunks)
    envelope = call.envelope("chat.completion.chunk")
    begun: set[int] = set()
    async with aclosing(call.outputs()) as outputs:
        async for choice, _ in outputs:
            if choice.index not in begun:
                begun.add(choice.index)
                first = _delta(choice, {"role": "assistant", "content": ""})
                yield {**envelope, "choices": [first], **usage.field(choice, 0)}
            for parts in _news(call, choice):
                yield {**envelope, **parts, **usage.field(choice, choice.num_tokens)}
    if body.has_usage_chunk:
        yield {**envelope, "choices": [], **call.totals()}


def _news(call: Call, choice: Choice) -> Iterator[Chunk]:
    text, new = choice.take_text(), choice.take_logprobs()
    if text or new:
        logprobs = chat_logprobs(call.tokenizer, new) if new else None
        yield {"choices": [_delta(choice, {"content": text}, logprobs)]}
    if choice.finish_reason is not None:
        last = {**_delta(choice, {}), "finish_reason": choice.finish_reason}
        yield {"choices": [last], "speculation": speculation_of([choice])}


def _delta(choice: Choice, delta: dict[str, str], logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"index": choice.index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
