"""The events of a streamed response. Each output item has its start, its deltas and its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

from paceline.core.errors import PacelineError
from paceline.gateway.answer import Answer
from paceline.gateway.http.errors import ApiError, api_error_from
from paceline.gateway.http.streamed_response import (
    EVENT_STREAM_TYPE,
    KEEP_ALIVE_COMMENT,
    Chunk,
    Chunks,
    StreamFormat,
    typed_event,
)
from paceline.gateway.openai.responses.output import (
    call_item,
    message_item,
    new_id,
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


async def response_events(answer: Answer, body: ResponsesRequest) -> Chunks:
    """Yields the events, numbered from 0. The last one has the complete response, or says that it failed.

    Raises the error of an answer that fails before its first event.
    """
    number = 0
    try:
        async with aclosing(_events(answer, body)) as events:
            async for event in events:
                yield {**event, "sequence_number": number}
                number += 1
    except PacelineError as error:
        if number == 0:
            raise
        found = api_error_from(error)
        failed = response_object(answer, body, "failed", [])
        failed["error"] = {"code": found.code or found.kind, "message": str(found)}
        yield {"type": "response.failed", "response": failed, "sequence_number": number}


async def _events(answer: Answer, body: ResponsesRequest) -> Chunks:
    (choice,) = answer.choices
    begun = response_object(answer, body, "in_progress", [])
    items = ItemEvents(choice.message)
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
    for event in items.end_all(status):
        yield event
    yield {"type": f"response.{status}", "response": response_object(answer, body, status, items.done)}


class ItemEvents:
    """Makes the events for the output items of one stream. `message` has what was parsed so far; `done` has the items
    that have ended."""

    def __init__(self, message: Message) -> None:
        self.done: list[dict[str, Any]] = []
        self._message = message
        self._open: type[Part] | None = None
        self._item_id = ""
        self._text = ""
        self._call: ToolCall | None = None

    def of(self, part: Part) -> Iterator[Chunk]:
        """Yields the events for one part, with the end of the item before it if it begins an item."""
        match part:
            case Content(text):
                yield from self._begin_text()
                yield {**self._place(), "type": "response.output_text.delta", "delta": text, "logprobs": []}
                self._text += text
            case Reasoning(text):
                yield from self._begin_reasoning()
                yield {**self._place(), "type": "response.reasoning_text.delta", "delta": text}
                self._text += text
            case CallBegin(index, name):
                yield from self.end("completed")
                call = self._call = self._message.calls[index]
                yield from self._begin(CallArguments, call_item(call.call_id, name, "", "in_progress"))
            case CallArguments(_, text):
                yield {**self._place_of_item(), "type": "response.function_call_arguments.delta", "delta": text}

    def end(self, status: str) -> Iterator[Chunk]:
        """Yields the events that end the open item, if there is one; `status` is that of a message or a call."""
        if self._open is Content:
            part = text_part(self._text)
            yield {**self._place(), "type": "response.output_text.done", "text": self._text, "logprobs": []}
            yield {**self._place(), "type": "response.content_part.done", "part": part}
            yield self._end(message_item(self._item_id, status, [part]))
        elif self._open is Reasoning:
            yield {**self._place(), "type": "response.reasoning_text.done", "text": self._text}
            yield self._end(reasoning_item(self._item_id, self._text))
        elif self._call is not None and self._open is CallArguments:
            yield from self._end_call(self._call, status)
        self._open = None

    def end_all(self, status: str) -> Iterator[Chunk]:
        """Yields the events that end the output. An empty answer is a message without text."""
        if self._open is None and not self.done:
            yield from self._begin_text()
        yield from self.end(status)

    def _begin_text(self) -> Iterator[Chunk]:
        if self._open is not Content:
            yield from self.end("completed")
            yield from self._begin(Content, message_item(new_id("msg"), "in_progress", []))
            yield {**self._place(), "type": "response.content_part.added", "part": text_part("")}

    def _begin_reasoning(self) -> Iterator[Chunk]:
        if self._open is not Reasoning:
            yield from self.end("completed")
            yield from self._begin(Reasoning, reasoning_item(new_id("rs"), None))

    def _begin(self, kind: type[Part], item: dict[str, Any]) -> Iterator[Chunk]:
        self._open, self._item_id, self._text = kind, item["id"], ""
        yield {"type": "response.output_item.added", "output_index": len(self.done), "item": item}

    def _end_call(self, call: ToolCall, status: str) -> Iterator[Chunk]:
        item = call_item(call.call_id, call.name, call.arguments, "completed" if call.is_complete else status)
        done = {"name": call.name, "arguments": call.arguments}
        yield {**self._place_of_item(), "type": "response.function_call_arguments.done", **done}
        yield self._end(item)

    def _end(self, item: dict[str, Any]) -> Chunk:
        self.done.append(item)
        return {"type": "response.output_item.done", "output_index": len(self.done) - 1, "item": item}

    def _place_of_item(self) -> Chunk:
        return {"item_id": self._item_id, "output_index": len(self.done)}

    def _place(self) -> Chunk:
        return {**self._place_of_item(), "content_index": 0}
