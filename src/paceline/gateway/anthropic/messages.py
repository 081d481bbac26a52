"""POST /v1/messages and /v1/messages/count_tokens: answers checked bodies, whole or as a stream of events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from paceline.core import FinishReason
from paceline.gateway.answer import Answer, Choice
from paceline.gateway.anthropic.conversion import chat_of, messages_call
from paceline.gateway.anthropic.errors import error_body
from paceline.gateway.anthropic.schema import MessagesRequest, PromptFields
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.http.context import Gateway
from paceline.gateway.http.json_response import JsonResponse
from paceline.gateway.http.streamed_response import (
    EVENT_STREAM_TYPE,
    Chunk,
    Chunks,
    StreamedResponse,
    StreamFormat,
    typed_event,
)
from paceline.gateway.parsing.events import CallArguments, CallBegin, Content, Part, Reasoning
from paceline.gateway.parsing.message import Message, ToolCall
from paceline.gateway.speculation_summary import speculation_of

MESSAGE_EVENTS = StreamFormat(
    media_type=EVENT_STREAM_TYPE,
    encode=typed_event,
    error_chunk=error_body,
    keep_alive=typed_event({"type": "ping"}),
)


async def create_message(gateway: Gateway, body: MessagesRequest, arrival: Arrival) -> Response:
    """Answers a checked request; raises what `GenerationService.begin` raises."""
    answer = await gateway.service.begin(messages_call(body, arrival))
    if body.stream:
        return await StreamedResponse.begin(_events(answer), MESSAGE_EVENTS, gateway.config.keep_alive_s)
    await answer.complete()
    (choice,) = answer.choices
    return JsonResponse(
        {
            **_envelope(answer),
            "content": list(_blocks(choice.message)),
            **_stop(choice),
            "usage": _usage(choice),
            "speculation": speculation_of([choice]),
        }
    )


async def count_tokens(gateway: Gateway, body: PromptFields, arrival: Arrival) -> Response:
    """Returns the number of tokens in the prompt, also if it is longer than the context window."""
    num_tokens = await gateway.service.count_tokens(chat_of(body), body.model, arrival.body_size_bytes)
    return JsonResponse({"input_tokens": num_tokens})


def _envelope(answer: Answer) -> dict[str, Any]:
    return {"id": answer.call_id, "type": "message", "role": "assistant", "model": answer.model_name}


def _blocks(message: Message) -> Iterator[dict[str, Any]]:
    if message.reasoning:
        yield {"type": "thinking", "thinking": message.reasoning, "signature": ""}
    if message.content:
        yield {"type": "text", "text": message.content}
    for call in message.calls:
        yield {**_tool_use(call), "input": call.parsed_arguments or {}}


def _tool_use(call: ToolCall) -> dict[str, Any]:
    call_id = f"toolu_{call.call_id.removeprefix('call_')}"
    return {"type": "tool_use", "id": call_id, "name": call.name, "input": {}}


def _stop(choice: Choice) -> dict[str, Any]:
    """Returns why the answer ended, and the stop sequence that ended it."""
    if choice.has_stopped_to_call:
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if choice.finish_reason is FinishReason.LENGTH:
        return {"stop_reason": "max_tokens", "stop_sequence": None}
    if isinstance(choice.stop_reason, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": choice.stop_reason}
    return {"stop_reason": "end_turn", "stop_sequence": None}


def _usage(choice: Choice) -> dict[str, int]:
    """Returns Anthropic's usage, in which cached tokens of the prompt are not input tokens."""
    return {
        "input_tokens": choice.num_prompt_tokens - choice.num_cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": choice.num_cached_tokens,
        "output_tokens": choice.num_tokens,
    }


async def _events(answer: Answer) -> Chunks:
    """Yields the events of a stream. Each block has its start, its deltas and its stop."""
    (choice,) = answer.choices
    blocks = _BlockEvents(choice.message)
    has_begun = False
    async with aclosing(answer.news()) as news:
        async for _ in news:
            if not has_begun:
                has_begun = True
                begun = {**_envelope(answer), "content": [], "stop_reason": None, "stop_sequence": None}
                yield {"type": "message_start", "message": {**begun, "usage": {**_usage(choice), "output_tokens": 0}}}
            for part in choice.take_parts():
                for chunk in blocks.of(part):
                    yield chunk
    for chunk in blocks.end():
        yield chunk
    stop = {"type": "message_delta", "delta": _stop(choice), "usage": _usage(choice)}
    yield {**stop, "speculation": speculation_of([choice])}
    yield {"type": "message_stop"}


class _BlockEvents:
    """Makes the events for the content blocks of one stream. `message` has the tool calls that have begun."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._index = -1
        self._open: type[Part] | None = None

    def of(self, part: Part) -> Iterator[Chunk]:
        """Yields the events for one part, with the end of the block before it if it begins a block."""
        match part:
            case Content(text):
                yield from self._begin(Content, {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": text})
            case Reasoning(text):
                yield from self._begin(Reasoning, {"type": "thinking", "thinking": "", "signature": ""})
                yield self._delta({"type": "thinking_delta", "thinking": text})
            case CallBegin(index, _):
                yield from self.end()
                yield from self._begin(CallArguments, _tool_use(self._message.calls[index]))
            case CallArguments(_, text):
                yield self._delta({"type": "input_json_delta", "partial_json": text})

    def end(self) -> Iterator[Chunk]:
        """Yields the end of the open block, if there is one."""
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._index}

    def _begin(self, kind: type[Part], block: dict[str, Any]) -> Iterator[Chunk]:
        if self._open is not kind:
            yield from self.end()
            self._open = kind
            self._index += 1
            yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> Chunk:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}
