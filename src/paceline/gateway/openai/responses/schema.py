"""The request body of the Responses API. A field is honoured, or cannot change the text, or is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from paceline.core import Constraint
from paceline.gateway.http.field_types import NoEffect, PositiveCount, Seed, TopK, only, within
from paceline.gateway.http.strict_body import StrictBody, field_error
from paceline.gateway.openai.common_schema import SpeculationOptions
from paceline.gateway.openai.message_schema import (
    MAX_TOOLS,
    FunctionDefinition,
    ToolChoiceField,
    check_tools,
)
from paceline.gateway.openai.responses.items import AnyItem
from paceline.gateway.parsing.tools import Tool, ToolChoice

MAX_ITEMS = 10_000


class FunctionTool(FunctionDefinition):
    """A function that the model may call. Tools that OpenAI's servers run are refused."""

    type: Literal["function"]


class TextFormat(StrictBody):
    """The form of the answer: free text, any JSON object, or JSON that a schema describes."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if (self.schema_ is not None) != (self.type == "json_schema"):
            raise field_error("text.format.schema", "it goes with the type json_schema, and only with that")
        return self

    @property
    def constraint(self) -> Constraint | None:
        """The constraint on the answer; None means free text."""
        match self.type:
            case "text":
                return None
            case "json_object":
                return Constraint(kind="json_object", source="", field="text.format")
            case "json_schema":
                kind = "json_schema" if self.strict else "lenient_json_schema"
                return Constraint(kind=kind, source=json.dumps(self.schema_), field="text.format.schema")


class TextOptions(StrictBody):
    """The form of the answer's text."""

    format: TextFormat | None = None
    verbosity: Annotated[str | None, only(None, "medium")] = None


class ReasoningOptions(StrictBody):
    """The effort of reasoning, for templates that know it. No summaries are made."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    summary: NoEffect[str | None] = None
    generate_summary: NoEffect[str | None] = None


def _as_items(value: object) -> object:
    """Returns the items of an input, which may be a single text of the user."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class StreamOptions(StrictBody):
    """Options of a stream. No padding against traffic analysis is added."""

    include_obfuscation: NoEffect[bool | None] = None


class ResponsesRequest(StrictBody):
    """The body of POST /v1/responses. `seed`, `top_k` and `speculation` are additions to OpenAI's fields."""

    model: str | None = None
    input: Annotated[
        list[AnyItem],
        Field(max_length=MAX_ITEMS, fail_fast=True),
        BeforeValidator(_as_items, json_schema_input_type=str | list[AnyItem]),
    ] = Field(default=[])
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_output_tokens: PositiveCount | None = None
    temperature: float | None = within("temperature")
    top_p: float | None = within("top_p")
    text: TextOptions | None = None
    tools: list[FunctionTool] | None = Field(default=None, max_length=MAX_TOOLS, fail_fast=True)
    tool_choice: ToolChoiceField = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    seed: Seed = None
    top_k: TopK = None
    speculation: SpeculationOptions | None = None
    metadata: dict[str, Any] | None = None  # this field and the next one come back in the response
    user: str | None = None
    service_tier: NoEffect[str | None] = None
    safety_identifier: NoEffect[str | None] = None
    prompt_cache_key: NoEffect[str | None] = None
    prompt_cache_retention: NoEffect[str | None] = None
    max_tool_calls: NoEffect[int | None] = None
    include: NoEffect[list[str] | None] = None
    # These fields ask for what is not there.
    top_logprobs: Annotated[int | None, only(None, 0)] = None
    truncation: Annotated[str | None, only(None, "disabled")] = None
    background: Annotated[bool | None, only(None, False)] = None
    conversation: Annotated[Any, only(None)] = None
    prompt: Annotated[Any, only(None)] = None
    context_management: Annotated[Any, only(None, [])] = None

    @model_validator(mode="after")
    def _check_response(self) -> Self:
        if not self.input and self.previous_response_id is None:
            raise field_error("input", "there is no item to answer")
        check_tools(list(self.tools or ()), self.tool_choice, ("tools", "tool_choice"))
        return self

    @property
    def is_stored(self) -> bool:
        """Whether the response can be fetched and continued later."""
        return self.store is not False

    @property
    def all_tools(self) -> tuple[Tool, ...]:
        """The tools that the request offers."""
        return tuple(tool.tool for tool in self.tools or ())

    @property
    def service_tool_choice(self) -> ToolChoice:
        """Whether the model may or must call the tools."""
        return replace(self.tool_choice or ToolChoice(), is_parallel=self.parallel_tool_calls is not False)

    @property
    def constraint(self) -> Constraint | None:
        """The form of the answer; None means free text."""
        form = None if self.text is None else self.text.format
        return None if form is None else form.constraint
