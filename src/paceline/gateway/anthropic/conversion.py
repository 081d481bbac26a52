"""Turns a checked body into the `GenerationCall` that the generation service takes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from paceline.core import SpeculationParams
from paceline.gateway.anthropic.blocks import AnyBlock, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from paceline.gateway.anthropic.schema import MessagesRequest, PromptFields
from paceline.gateway.generation_call import Chat, GenerationCall
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.sampling_fields import given


def messages_call(body: MessagesRequest, arrival: Arrival) -> GenerationCall:
    """Returns the call for POST /v1/messages."""
    sampling = given(
        temperature=body.temperature,
        top_k=body.top_k,
        top_p=body.top_p,
        max_tokens=body.max_tokens,
        stop=body.stop_sequences,
    )
    return GenerationCall(
        call_id=f"msg_{uuid.uuid4().hex}",
        model=body.model,
        input=chat_of(body),
        num_choices=1,
        sampling=sampling,
        speculation=SpeculationParams(),
        constraint=body.constraint,
        principal=arrival.principal,
        arrival_s=arrival.time_s,
        size_bytes=arrival.body_size_bytes,
    )


def chat_of(body: PromptFields) -> Chat:
    """Returns the chat of a body."""
    tools = tuple(tool.tool for tool in body.tools)
    return Chat(list(_template_messages(body)), _template_options(body), tools, body.service_tool_choice)


def _template_options(body: PromptFields) -> dict[str, Any]:
    """Returns the template variables for reasoning; templates that do not know them ignore them. As in Anthropic's API,
    the model does not reason unless the request asks for it."""
    effort = None if body.output_config is None else body.output_config.effort
    options: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    wants_thinking = body.thinking is not None and body.thinking.type != "disabled"
    return {**options, "enable_thinking": wants_thinking}


def _template_messages(body: PromptFields) -> Iterator[dict[str, object]]:
    if body.system:
        yield {"role": "system", "content": _text_parts(body.system)}
    for role, group in groupby(body.messages, attrgetter("role")):
        blocks = [block for message in group for block in message.content]  # messages of one role are one turn
        yield from _assistant_turn(blocks) if role == "assistant" else _user_turn(blocks)


def _user_turn(content: Sequence[AnyBlock]) -> Iterator[dict[str, object]]:
    """Yields a message for each result of a tool, and one for the texts between two results."""
    for are_results, group in groupby(content, lambda block: isinstance(block, ToolResultBlock)):
        blocks = list(group)
        if not are_results:
            yield {"role": "user", "content": _text_parts(blocks)}
        for result in blocks:
            if isinstance(result, ToolResultBlock):
                text = "\n".join(part.text for part in result.content)
                shown = f"Error: {text}" if result.is_error else text
                yield {"role": "tool", "tool_call_id": result.tool_use_id, "content": shown}


def _assistant_turn(content: Sequence[AnyBlock]) -> Iterator[dict[str, object]]:
    calls = [
        {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": json.dumps(block.input)}}
        for block in content
        if isinstance(block, ToolUseBlock)
    ]
    reasoning = "".join(block.thinking for block in content if isinstance(block, ThinkingBlock))
    yield {
        "role": "assistant",
        "content": "".join(block.text for block in content if isinstance(block, TextBlock)),
        "tool_calls": calls or None,
        "reasoning_content": reasoning or None,
    }


def _text_parts(blocks: Iterable[AnyBlock]) -> list[dict[str, str]]:
    return [{"type": "text", "text": block.text} for block in blocks if isinstance(block, TextBlock)]
