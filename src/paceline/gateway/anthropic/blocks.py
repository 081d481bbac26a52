"""The content blocks of messages in request bodies. Images and documents are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from paceline.gateway.http.field_types import NoEffect, Text
from paceline.gateway.http.strict_body import StrictBody


class Block(StrictBody):
    """What all blocks share. Prefixes are cached anyway, so `cache_control` has no effect."""

    cache_control: NoEffect[dict[str, Any] | None] = None


class TextBlock(Block):
    """A text."""

    type: Literal["text"]
    text: Text
    citations: NoEffect[list[Any] | None] = None


class ToolUseBlock(Block):
    """A tool call of an earlier answer."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    caller: NoEffect[dict[str, Any] | None] = None


class ThinkingBlock(Block):
    """The reasoning of an earlier answer. The signature, which proves its origin at Anthropic, has no effect."""

    type: Literal["thinking"]
    thinking: Text
    signature: NoEffect[str | None] = None


class RedactedThinkingBlock(Block):
    """Encrypted reasoning, which is ignored because only Anthropic can read it."""

    type: Literal["redacted_thinking"]
    data: str


def _as_blocks(value: object) -> object:
    """Returns the blocks for a content, which may be a single text."""
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


TextBlocks: TypeAlias = Annotated[
    list[TextBlock],
    Field(fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=str | list[TextBlock]),
]
"""A text, or a list of text blocks."""


class ToolResultBlock(Block):
    """The result of a tool call. The model sees the word Error before a result with `is_error`."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: TextBlocks = Field(default=[])
    is_error: bool | None = None


AnyBlock: TypeAlias = Annotated[
    TextBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock, Field(discriminator="type")
]
Blocks: TypeAlias = Annotated[
    list[AnyBlock], Field(fail_fast=True), BeforeValidator(_as_blocks, json_schema_input_type=str | list[AnyBlock])
]
"""A text, or a list of blocks."""
