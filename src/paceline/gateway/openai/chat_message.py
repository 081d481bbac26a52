"""The assistant's message in chat completions, whole and in deltas, with tool calls under their new or old name."""

from __future__ import annotations

import enum
from typing import Any

from paceline.gateway.parsing.events import CallArguments, CallBegin, Content, Part, Reasoning
from paceline.gateway.parsing.message import Message, ToolCall


class CallNames(enum.Enum):
    """How the client asked for calls: by `tools`, or by the older `functions`. The value is the finish reason."""

    TOOLS = "tool_calls"
    FUNCTIONS = "function_call"

    @property
    def finish_reason(self) -> str:
        """The finish reason of an answer that ends with calls."""
        return self.value


def message_of(message: Message, names: CallNames) -> dict[str, Any]:
    """Returns the whole message."""
    found: dict[str, Any] = {"role": "assistant", "content": message.content, "refusal": None}
    if message.reasoning:
        found["reasoning_content"] = message.reasoning
    if message.calls:
        found["content"] = message.content or None
        found.update(_calls_of(message.calls, names))
    return found


def delta_of(part: Part, message: Message, names: CallNames) -> dict[str, Any]:
    """Returns the delta of a stream for one part. `message` holds the call to which the part may belong."""
    match part:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case CallBegin(index, name):
            begun = {"name": name, "arguments": ""}
            identity = {"id": message.calls[index].call_id, "type": "function"}
            return _call_delta(index, identity, begun, names)
        case CallArguments(index, text):
            return _call_delta(index, {}, {"arguments": text}, names)


def _calls_of(calls: list[ToolCall], names: CallNames) -> dict[str, Any]:
    functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
    if names is CallNames.FUNCTIONS:
        return {"function_call": functions[0]}
    return {
        "tool_calls": [
            {"id": call.call_id, "type": "function", "function": function}
            for call, function in zip(calls, functions, strict=True)
        ]
    }


def _call_delta(index: int, identity: dict[str, str], function: dict[str, str], names: CallNames) -> dict[str, Any]:
    if names is CallNames.FUNCTIONS:
        return {"function_call": function}
    return {"tool_calls": [{"index": index, **identity, "function": function}]}
