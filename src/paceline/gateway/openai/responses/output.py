"""The objects of the Responses API for an answer: the response, its output items, and its usage."""

from __future__ import annotations

import secrets
from typing import Any

from paceline.core import FinishReason
from paceline.gateway.answer import Answer, Choice
from paceline.gateway.openai.responses.items import AnyItem, CallItem, MessageItem, ReasoningItem, TextPart
from paceline.gateway.openai.responses.schema import ResponsesRequest
from paceline.gateway.parsing.message import Message
from paceline.gateway.speculation_summary import speculation_of

_ID_BYTES = 12


def new_id(prefix: str) -> str:
    """Returns a random id of an output item."""
    return f"{prefix}_{secrets.token_hex(_ID_BYTES)}"


def response_object(
    answer: Answer, body: ResponsesRequest, status: str, output: list[dict[str, Any]]
) -> dict[str, Any]:
    """Returns the response object. Before it is complete, its output is empty and it has no usage."""
    (choice,) = answer.choices
    is_over = status in ("completed", "incomplete")
    return {
        "id": answer.call_id,
        "object": "response",
        "created_at": answer.created_s,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "model": answer.model_name,
        "output": output,
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": body.is_stored,
        "temperature": body.temperature,
        "text": {"format": _format_of(body)},
        "tool_choice": _tool_choice_of(body),
        "tools": [tool.model_dump(exclude_none=True) for tool in body.tools or ()],
        "top_p": body.top_p,
        "truncation": "disabled",
        "usage": _usage(choice) if is_over else None,
        "user": body.user,
        "metadata": body.metadata or {},
        "speculation": speculation_of([choice]) if is_over else None,
    }


def status_of(choice: Choice) -> str:
    """Returns the status of a response that is over."""
    return "incomplete" if choice.finish_reason is FinishReason.LENGTH else "completed"


def output_items(message: Message, status: str) -> list[dict[str, Any]]:
    """Returns the output items of a message that is over."""
    found: list[dict[str, Any]] = []
    if message.reasoning:
        found.append(reasoning_item(new_id("rs"), message.reasoning))
    if message.content or not (message.calls or message.reasoning):
        found.append(message_item(new_id("msg"), status, [text_part(message.content)]))
    return found + [
        call_item(call.call_id, call.name, call.arguments, "completed" if call.is_complete else status)
        for call in message.calls
    ]


def items_for_history(message: Message) -> list[AnyItem]:
    """Returns the output as items of the conversation, for a response that continues it."""
    found: list[AnyItem] = []
    if message.reasoning:
        part = TextPart(type="reasoning_text", text=message.reasoning)
        found.append(ReasoningItem(type="reasoning", content=[part]))
    if message.content:
        part = TextPart(type="output_text", text=message.content)
        found.append(MessageItem(role="assistant", content=[part]))
    calls = (call for call in message.calls if call.is_complete)
    return found + [
        CallItem(type="function_call", call_id=call.call_id, name=call.name, arguments=call.arguments) for call in calls
    ]


def text_part(text: str) -> dict[str, Any]:
    """Returns a message's part."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message_item(item_id: str, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the item of the answer's text."""
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": content}


def reasoning_item(item_id: str, text: str | None) -> dict[str, Any]:
    """Returns the item of the reasoning; `text` None means that it has just begun."""
    content = [] if text is None else [{"type": "reasoning_text", "text": text}]
    return {"id": item_id, "type": "reasoning", "summary": [], "content": content}


def call_item(call_id: str, name: str, arguments: str, status: str) -> dict[str, Any]:
    """Returns the item of a call."""
    item_id = f"fc_{call_id.removeprefix('call_')}"
    return {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def _usage(choice: Choice) -> dict[str, Any]:
    return {
        "input_tokens": choice.num_prompt_tokens,
        "input_tokens_details": {"cached_tokens": choice.num_cached_tokens},
        "output_tokens": choice.num_tokens,
        "output_tokens_details": {"reasoning_tokens": choice.num_reasoning_tokens},
        "total_tokens": choice.num_prompt_tokens + choice.num_tokens,
    }


def _format_of(body: ResponsesRequest) -> dict[str, Any]:
    if body.text is None or body.text.format is None:
        return {"type": "text"}
    return body.text.format.model_dump(by_alias=True, exclude_none=True)


def _tool_choice_of(body: ResponsesRequest) -> Any:  # noqa: ANN401 - a JSON value
    choice = body.service_tool_choice
    if choice.names is None:
        return choice.mode
    tools = [{"type": "function", "name": name} for name in sorted(choice.names)]
    return tools[0] if len(tools) == 1 else {"type": "allowed_tools", "mode": choice.mode, "tools": tools}
