"""The request bodies of Anthropic's Messages API. A field is honoured, or marked as having no effect, or refused."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from paceline.core import Constraint
from paceline.gateway.anthropic.blocks import Blocks, TextBlocks
from paceline.gateway.http.field_types import NoEffect, PositiveCount, StopStrings, TopK, only, within
from paceline.gateway.http.strict_body import StrictBody, field_error
from paceline.gateway.parsing.tools import Tool, ToolChoice

MAX_TOOLS = 128
_NOT_OF_ASSISTANT = frozenset({"tool_result"})
_NOT_OF_USER = frozenset({"tool_use", "thinking", "redacted_thinking"})
_MODES = MappingProxyType({"auto": "auto", "any": "required", "tool": "required", "none": "none"})


class Message(StrictBody):
    """One turn of the conversation. Results of tools are the user's; calls and reasoning are the assistant's."""

    role: Literal["user", "assistant"]
    content: Blocks

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        wrong = _NOT_OF_ASSISTANT if self.role == "assistant" else _NOT_OF_USER
        if not self.content and self.role == "user":
            raise PydanticCustomError("invalid_value", "a message of the user needs a block", {"field": "content"})
        if kinds := wrong.intersection(block.type for block in self.content):
            reason = f"the {self.role} cannot have a block of the type {min(kinds)}"
            raise PydanticCustomError("invalid_value", reason, {"field": "content"})
        return self


class ToolDefinition(StrictBody):
    """A tool of the client. Tools that Anthropic's servers run are refused."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")
    type: Literal["custom"] | None = None
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    cache_control: NoEffect[dict[str, Any] | None] = None
    eager_input_streaming: NoEffect[bool | None] = None
    input_examples: NoEffect[list[Any] | None] = None
    allowed_callers: NoEffect[list[str] | None] = None
    defer_loading: Annotated[bool | None, only(None, False)] = None

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if self.input_schema.get("type", "object") != "object":
            raise field_error("tools.input_schema", "it must be the schema of a json object")
        return self

    @property
    def tool(self) -> Tool:
        """The tool as the service takes it."""
        return Tool(self.name, self.description, self.input_schema, bool(self.strict))


class ToolChoiceField(StrictBody):
    """Whether the model may or must call tools; `name` belongs to the type `tool`."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(StrictBody):
    """Whether the model reasons before it answers, if its template has a switch for that. The budget has no effect."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: NoEffect[int | None] = None
    display: Annotated[str | None, only(None, "summarized")] = None


class OutputFormat(StrictBody):
    """The form of the answer."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(StrictBody):
    """The form of the answer, and the effort of reasoning for templates that know it."""

    format: OutputFormat | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class PromptFields(StrictBody):
    """The fields that make up the prompt; the body of POST /v1/messages/count_tokens."""

    model: str | None = None
    messages: list[Message] = Field(min_length=1, fail_fast=True)
    system: TextBlocks = Field(default=[])
    tools: list[ToolDefinition] = Field(default=[], max_length=MAX_TOOLS, fail_fast=True)
    tool_choice: ToolChoiceField | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    cache_control: NoEffect[dict[str, Any] | None] = None
    context_management: NoEffect[dict[str, Any] | None] = None
    diagnostics: NoEffect[dict[str, Any] | None] = None
    speed: NoEffect[str | None] = None
    user_profile_id: NoEffect[str | None] = None
    workspace_id: NoEffect[str | None] = None
    # These fields ask for services that are not there.
    mcp_servers: Annotated[list[Any] | None, only(None, [])] = None
    container: Annotated[Any, only(None)] = None

    @model_validator(mode="after")
    def _check_prompt(self) -> Self:
        if self.messages[-1].role != "user":
            raise field_error("messages", "the last message must be the user's: an answer cannot be continued")
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise field_error("tools", "two tools have the same name")
        choice = self.tool_choice
        if choice is not None and choice.type in ("any", "tool") and not names:
            raise field_error("tool_choice", "there are no tools to call")
        if choice is not None and choice.type == "tool" and choice.name not in names:
            raise field_error("tool_choice", f"there is no tool named {choice.name!r}")
        return self

    @property
    def service_tool_choice(self) -> ToolChoice:
        """Whether the model may or must call tools, as the service takes it."""
        choice = self.tool_choice
        if choice is None:
            return ToolChoice()
        names = frozenset({choice.name}) if choice.type == "tool" and choice.name is not None else None
        mode: Any = _MODES[choice.type]
        return ToolChoice(mode, names, is_parallel=not choice.disable_parallel_tool_use)

    @property
    def constraint(self) -> Constraint | None:
        """The form of the answer; None means free text."""
        form = self.output_format or (None if self.output_config is None else self.output_config.format)
        if form is None:
            return None
        return Constraint(kind="json_schema", source=json.dumps(form.schema_), field="output_config.format.schema")


class MessagesRequest(PromptFields):
    """The body of POST /v1/messages."""

    max_tokens: PositiveCount
    temperature: float | None = within("temperature")
    top_p: float | None = within("top_p")
    top_k: TopK = None
    stop_sequences: StopStrings = ()
    stream: bool | None = None
    metadata: NoEffect[dict[str, Any] | None] = None
    service_tier: NoEffect[str | None] = None
    inference_geo: NoEffect[str | None] = None
