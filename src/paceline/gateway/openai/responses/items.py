"""The items of a conversation in the Responses API: messages, calls, results of calls, and reasoning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag

from paceline.gateway.http.field_types import NoEffect, Text
from paceline.gateway.http.strict_body import StrictBody


class TextPart(StrictBody):
    """A part of a message. Images, files and audio are refused."""

    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: Text
    annotations: NoEffect[list[Any] | None] = None
    logprobs: NoEffect[list[Any] | None] = None


class RefusalPart(StrictBody):
    """A refusal in an earlier answer."""

    type: Literal["refusal"]
    refusal: Text

    @property
    def text(self) -> str:
        """The refusal as text."""
        return self.refusal


def _as_parts(value: object) -> object:
    """Returns the parts of a content, which may be a single text."""
    return [{"type": "input_text", "text": value}] if isinstance(value, str) else value


AnyPart: TypeAlias = Annotated[TextPart | RefusalPart, Field(discriminator="type")]
Parts: TypeAlias = Annotated[
    list[AnyPart], Field(fail_fast=True), BeforeValidator(_as_parts, json_schema_input_type=str | list[AnyPart])
]
"""A text, or a list of parts."""


class MessageItem(StrictBody):
    """A message; the role `developer` is the newer name of `system`."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Parts
    id: NoEffect[str | None] = None
    status: NoEffect[str | None] = None
    phase: NoEffect[str | None] = None


class CallItem(StrictBody):
    """A tool call of an earlier answer; `arguments` is JSON text."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: Text
    id: NoEffect[str | None] = None
    status: NoEffect[str | None] = None
    namespace: NoEffect[str | None] = None
    parsed_arguments: NoEffect[Any] = None


class CallOutputItem(StrictBody):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: str
    output: Parts
    id: NoEffect[str | None] = None
    status: NoEffect[str | None] = None


class ReasoningItem(StrictBody):
    """The reasoning of an earlier answer. Encrypted reasoning is ignored, because only OpenAI can read it."""

    type: Literal["reasoning"]
    id: NoEffect[str | None] = None
    summary: Parts = Field(default=[])
    content: Parts | None = None
    encrypted_content: NoEffect[str | None] = None
    status: NoEffect[str | None] = None


def _kind(value: Any) -> str | None:  # noqa: ANN401 - a JSON value
    """Returns the type of an item; a message may come without one."""
    return value.get("type", "message") if isinstance(value, dict) else getattr(value, "type", None)


AnyItem: TypeAlias = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[CallOutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")],
    Discriminator(_kind),
]


def text_of(parts: Iterable[TextPart | RefusalPart]) -> str:
    """Returns the text of all parts."""
    return "".join(part.text for part in parts)
