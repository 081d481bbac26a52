"""The request bodies that clients may send. A field is honoured, or cannot change the text, or is refused by name.

An absent field and null mean the same. Beyond OpenAI's fields there are fields of vLLM, with vLLM's meaning, and
`speculation`, which is Paceline's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paceline.gateway.http.field_types import MAX_LOGPROBS, NoEffect, PositiveCount, Prompts, only
from paceline.gateway.http.strict_body import field_error
from paceline.gateway.openai.common_schema import GenerationFields
from paceline.gateway.openai.message_schema import (
    MAX_TOOLS,
    ChatMessage,
    FunctionDefinition,
    ToolChoiceField,
    ToolDefinition,
    check_tools,
)
from paceline.gateway.parsing.tools import Tool, ToolChoice

_RESERVED_TEMPLATE_NAMES = frozenset({"messages", "self", "tools"})


class ChatCompletionRequest(GenerationFields):
    """The body of POST /v1/chat/completions."""

    messages: list[ChatMessage] = Field(min_length=1, fail_fast=True)
    max_completion_tokens: PositiveCount | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: Annotated[bool | None, only(None, True)] = None
    continue_final_message: Annotated[bool | None, only(None, False)] = None
    chat_template: Annotated[str | None, only(None)] = None
    tools: list[ToolDefinition] | None = Field(default=None, max_length=MAX_TOOLS, fail_fast=True)
    tool_choice: ToolChoiceField = None
    functions: list[FunctionDefinition] | None = Field(default=None, max_length=MAX_TOOLS, fail_fast=True)
    function_call: ToolChoiceField = None
    parallel_tool_calls: bool | None = None
    modalities: Annotated[list[str] | None, only(None, ["text"])] = None
    audio: Annotated[Any, only(None)] = None
    prediction: NoEffect[dict[str, Any] | None] = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    verbosity: Annotated[str | None, only(None, "medium")] = None
    web_search_options: Annotated[Any, only(None)] = None

    @model_validator(mode="after")
    def _check_chat(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise field_error("top_logprobs", "it is only allowed if logprobs is true")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise field_error("max_tokens", "it differs from max_completion_tokens, its newer name: send only one")
        if reserved := _RESERVED_TEMPLATE_NAMES.intersection(self.chat_template_kwargs or ()):
            raise field_error("chat_template_kwargs", f"{min(reserved)} is not a variable that a request may set")
        for index, message in enumerate(self.messages):
            if message.content is None and message.refusal is None and not message.is_call:
                raise field_error(f"messages[{index}].content", "every message needs a content")
        if self.functions and self.tools:
            raise field_error("functions", "it is the older name of tools, send only one")
        check_tools([tool.function for tool in self.tools or ()], self.tool_choice, ("tools", "tool_choice"))
        check_tools(self.functions or [], self.function_call, ("functions", "function_call"))
        return self

    @property
    def all_tools(self) -> tuple[Tool, ...]:
        """The tools that the request offers, under either name."""
        functions = self.functions or [tool.function for tool in self.tools or ()]
        return tuple(function.tool for function in functions)

    @property
    def all_tool_choice(self) -> ToolChoice:
        """Whether the model may or must call them. The older `functions` allow one call in an answer."""
        choice = (self.function_call if self.functions else self.tool_choice) or ToolChoice()
        is_parallel = not self.functions and self.parallel_tool_calls is not False
        return replace(choice, is_parallel=is_parallel)

    @property
    def token_limit(self) -> int | None:
        """The most tokens to generate; None generates until the context is full."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        """The number of most likely tokens to report beside each token; None reports no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(GenerationFields):
    """The body of POST /v1/completions."""

    prompt: Prompts
    echo: bool | None = None
    logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    best_of: PositiveCount | None = None
    suffix: str | None = None
    add_special_tokens: Annotated[bool | None, only(None, True)] = None

    @model_validator(mode="after")
    def _check_completion(self) -> Self:
        if self.best_of not in (None, 1, self.num_choices):
            raise field_error("best_of", "only 1 or the value of n is supported, leave it out")
        if self.suffix and (len(self.prompt) > 1 or not isinstance(self.prompt[0], str)):
            raise field_error("suffix", "it needs a prompt that is a single text")
        if self.echo and self.suffix and self.logprobs is not None:
            raise field_error("echo", "it cannot go with both suffix and logprobs, leave one of them out")
        return self

    @property
    def infill_prefix(self) -> str:
        """The text before the gap that the model is to fill."""
        return str(self.prompt[0])

    @property
    def token_limit(self) -> int:
        """The most tokens to generate."""
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        """The number of most likely tokens to report beside each token; None reports no log-probabilities."""
        return self.logprobs

    @property
    def has_prompt_logprobs(self) -> bool:
        """Whether the prompt's tokens get log-probabilities too."""
        return bool(self.echo) and self.logprobs is not None
