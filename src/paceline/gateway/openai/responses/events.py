"""The events of a streamed response. Each output item has its start, its deltas and its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

from paceline.gateway.answer import Answer
from paceline.gateway.http.errors import ApiError
from paceline.gateway.http.streamed_response import (
    EVENT_STREAM_TYPE,
    KEEP_ALIVE_COMMENT,
    Chunk,
    Chunks,
    StreamFormat,
    typed_event,
)
from paceline.gateway.openai.responses.output import (
    OutputIds,
    call_item,
    message_item,
    output_items,
    reasoning_item,
    response_object,
    status_of,
    text_part,
)
from paceline.gateway.openai.responses.schema import ResponsesRequest
from paceline.gateway.parsing.events import CallArguments, CallBegin, Content, Part, Reasoning
from paceline.gateway.parsing.message import Message, ToolCall


def _error_event(error: ApiError) -> Chunk:
    return {"type": "error", "code": error.code or error.kind, "message": str(error), "param": error.param}


RESPONSE_EVENTS = StreamFormat(
    media_type=EVENT_STREAM_TYPE,
    encode=typed_event,
    error_chunk=_error_event,
    keep_alive=KEEP_ALIVE_COMMENT,
)


async def response_events(answer: Answer, body: ResponsesRequest, ids: OutputIds) -> Chunks:
    """Yields the events, numbered from 0. The last one has the complete response."""
    number = 0
    async with aclosing(_events(answer, body, ids)) as events:
        async for event in events:
            yield {**event, "sequence_number": number}
            number += 1


async def _events(answer: Answer, body: ResponsesRequest, ids: OutputIds) -> Chunks:
    (choice,) = answer.choices
    begun = response_object(answer, body, "in_progress", [])
    items = ItemEvents(choice.message, ids)
    has_begun = False
    async with aclosing(answer.news()) as news:
        async for _ in news:
            if not has_begun:
                has_begun = True
                yield {"type": "response.created", "response": begun}
                yield {"type": "response.in_progress", "response": begun}
            for part in choice.take_parts():
                for event in items.of(part):
                    yield event
    status = status_of(choice)
    for event in items.end(status):
        yield event
    response = response_object(answer, body, status, output_items(choice.message, ids, status))
    yield {"type": f"response.{status}", "response": response}


class ItemEvents:
    """Makes the events for the output items of one stream. `message` has what was parsed so far."""

    def __init__(self, message: Message, ids: OutputIds) -> None:
        self._message = message
        self._ids = ids
        self._index = -1
        self._open: type[Part] | None = None
        self._call: ToolCall | None = None

    def of(self, part: Part) -> Iterator[Chunk]:
        """Yields the events for one part, with the end of the item before it if it begins an item."""
        match part:
            case Content(text):
                yield from self._begin_text()
                yield {**self._delta("response.output_text.delta", self._ids.message, text), "logprobs": []}
            case Reasoning(text):
                yield from self._begin_reasoning()
                yield self._delta("response.reasoning_text.delta", self._ids.reasoning, text)
            case CallBegin(index, name):
                yield from self.end("completed")
                call = self._message.calls[index]
                self._call = call
                yield from self._begin(CallArguments, call_item(call.call_id, name, "", "in_progress"))
            case CallArguments(index, text):
                call = self._message.calls[index]
                item_id = call_item(call.call_id, call.name, "", "")["id"]
                place = {"item_id": item_id, "output_index": self._index}
                yield {"type": "response.function_call_arguments.delta", **place, "delta": text}

    def end(self, status: str) -> Iterator[Chunk]:
        """Yields the events that end the open item, if there is one; `status` is that of a message or a call."""
        if self._open is Content:
            yield from self._end_text(status)
        elif self._open is Reasoning:
            text = self._message.reasoning
            yield self._text_done("response.reasoning_text.done", self._ids.reasoning, text)
            yield self._done(reasoning_item(self._ids, text))
        elif self._open is CallArguments:
            yield from self._end_call(status)
        self._open = None

    def _begin_text(self) -> Iterator[Chunk]:
        if self._open is not Content:
            yield from self.end("completed")
            yield from self._begin(Content, message_item(self._ids, "in_progress", []))
            place = {"item_id": self._ids.message, "output_index": self._index, "content_index": 0}
            yield {"type": "response.content_part.added", **place, "part": text_part("")}

    def _begin_reasoning(self) -> Iterator[Chunk]:
        if self._open is not Reasoning:
            yield from self.end("completed")
            yield from self._begin(Reasoning, reasoning_item(self._ids, None))

    def _begin(self, kind: type[Part], item: dict[str, Any]) -> Iterator[Chunk]:
        self._open = kind
        self._index += 1
        yield {"type": "response.output_item.added", "output_index": self._index, "item": item}

    def _end_text(self, status: str) -> Iterator[Chunk]:
        part = text_part(self._message.content)
        place = {"item_id": self._ids.message, "output_index": self._index, "content_index": 0}
        yield {**self._text_done("response.output_text.done", self._ids.message, part["text"]), "logprobs": []}
        yield {"type": "response.content_part.done", **place, "part": part}
        yield self._done(message_item(self._ids, status, [part]))

    def _end_call(self, status: str) -> Iterator[Chunk]:
        call = self._call
        assert call is not None
        item = call_item(call.call_id, call.name, call.arguments, "completed" if call.is_complete else status)
        place = {"item_id": item["id"], "output_index": self._index}
        done = {"name": call.name, "arguments": call.arguments}
        yield {"type": "response.function_call_arguments.done", **place, **done}
        yield self._done(item)

    def _delta(self, kind: str, item_id: str, text: str) -> Chunk:
        place = {"item_id": item_id, "output_index": self._index, "content_index": 0}
        return {"type": kind, **place, "delta": text}

    def _text_done(self, kind: str, item_id: str, text: str) -> Chunk:
        place = {"item_id": item_id, "output_index": self._index, "content_index": 0}
        return {"type": kind, **place, "text": text}

    def _done(self, item: dict[str, Any]) -> Chunk:
        return {"type": "response.output_item.done", "output_index": self._index, "item": item}
