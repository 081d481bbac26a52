"""Turns a checked body and the items before it into the `GenerationCall` that the generation service takes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from paceline.core import SpeculationParams
from paceline.gateway.generation_call import Chat, GenerationCall
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.openai.generation_call import effort_options
from paceline.gateway.openai.responses.items import (
    AnyItem,
    CallItem,
    CallOutputItem,
    MessageItem,
    ReasoningItem,
    text_of,
)
from paceline.gateway.openai.responses.schema import ResponsesRequest
from paceline.gateway.sampling_fields import given


def response_call(body: ResponsesRequest, items: Sequence[AnyItem], arrival: Arrival) -> GenerationCall:
    """Returns the call for a response to these items, which are the whole conversation."""
    messages = list(_template_messages(body, items))
    return GenerationCall(
        call_id=f"resp_{uuid.uuid4().hex}",
        model=body.model,
        input=Chat(
            messages,
            effort_options(None if body.reasoning is None else body.reasoning.effort),
            body.all_tools,
            body.service_tool_choice,
        ),
        num_choices=1,
        sampling=given(
            temperature=body.temperature,
            top_k=body.top_k,
            top_p=body.top_p,
            seed=body.seed,
            max_tokens=body.max_output_tokens,
        ),
        speculation=SpeculationParams() if body.speculation is None else body.speculation.params,
        constraint=body.constraint,
        principal=arrival.principal,
        arrival_s=arrival.time_s,
        size_bytes=max(arrival.body_size_bytes, sum(len(str(message.get("content"))) for message in messages)),
    )


def _template_messages(body: ResponsesRequest, items: Sequence[AnyItem]) -> Iterator[dict[str, Any]]:
    """Yields the messages. Reasoning, text and calls that follow each other are one message of the assistant."""
    if body.instructions:
        yield {"role": "system", "content": body.instructions}
    turn: dict[str, Any] | None = None
    for item in items:
        if _is_assistants(item):
            if turn is not None and _has_ended(turn, item):
                yield turn
                turn = None
            turn = turn or {"role": "assistant", "content": "", "tool_calls": None, "reasoning_content": None}
            _add(item, turn)
            continue
        if turn is not None:
            yield turn
            turn = None
        if isinstance(item, CallOutputItem):
            yield {"role": "tool", "tool_call_id": item.call_id, "content": text_of(item.output)}
        elif isinstance(item, MessageItem):
            yield {"role": item.role, "content": [{"type": "text", "text": part.text} for part in item.content]}
    if turn is not None:
        yield turn


def _is_assistants(item: AnyItem) -> bool:
    return isinstance(item, CallItem | ReasoningItem) or (isinstance(item, MessageItem) and item.role == "assistant")


def _has_ended(turn: dict[str, Any], item: AnyItem) -> bool:
    """Returns whether an item begins another message: text or reasoning after calls or text."""
    return not isinstance(item, CallItem) and bool(turn["tool_calls"] or turn["content"])


def _add(item: AnyItem, turn: dict[str, Any]) -> None:
    match item:
        case MessageItem():
            turn["content"] = text_of(item.content)
        case ReasoningItem():
            turn["reasoning_content"] = text_of(item.content or item.summary) or None
        case CallItem():
            function = {"name": item.name, "arguments": item.arguments}
            call = {"id": item.call_id, "type": "function", "function": function}
            turn["tool_calls"] = [*(turn["tool_calls"] or ()), call]
