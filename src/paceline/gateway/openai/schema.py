"""The request bodies that clients may send. A field is honoured, or cannot change the text, or is refused by name.

An absent field and null mean the same. Beyond OpenAI's fields there are fields of vLLM, with vLLM's meaning, and
`speculation`, which is Paceline's own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from paceline.core import SpeculationMode
from paceline.gateway.openai.field_types import (
    Count,
    LogitBias,
    MessageContent,
    PositiveCount,
    Prompts,
    Reasoning,
    Seed,
    SignedCount,
    StopStrings,
    TopK,
    only,
    within,
)

MAX_CHOICES = 128
MAX_LOGPROBS = 20
MAX_STOP_TOKENS = 1024
_RESERVED_TEMPLATE_NAMES = frozenset({"messages", "self", "tools"})


def _additional_properties_are_refused(schema: dict[str, Any]) -> None:
    schema["additionalProperties"] = False


class _Strict(BaseModel):
    """Refuses the first unknown field itself: pydantic would report all of them, which takes minutes for a hostile
    body."""

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        json_schema_extra=_additional_properties_are_refused,
    )

    @model_validator(mode="after")
    def _refuse_unknown_fields(self) -> Self:
        for name in self.model_extra or ():
            raise PydanticCustomError("unknown_parameter", "remove it or correct its name", {"field": name})
        return self


class StreamOptions(_Strict):
    """Options of a stream. `include_obfuscation` is accepted, but no padding against traffic analysis is added.

    `continuous_usage_stats`, a field of vLLM, puts the usage so far into every chunk if `include_usage` is true too.
    """

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class ResponseFormat(_Strict):
    """The form of the answer; only plain text is supported."""

    type: Annotated[str, only("text")]


class SpeculationOptions(_Strict):
    """Paceline's own options: whether to draft, how far and with which drafters. They never change the text."""

    mode: Literal["auto", "off"] = "auto"
    max_window: Count | None = None
    drafters: list[str] | None = Field(default=None, fail_fast=True)

    @property
    def speculation_mode(self) -> SpeculationMode:
        """The mode as the engine's type."""
        return SpeculationMode(self.mode)


class GenerationFields(_Strict):
    """The fields that chat completions and text completions share."""

    model: str | None = None
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    max_tokens: PositiveCount | None = None
    temperature: float | None = within("temperature")
    top_p: float | None = within("top_p")
    presence_penalty: float | None = within("presence_penalty")
    frequency_penalty: float | None = within("frequency_penalty")
    logit_bias: LogitBias = Field(default={})
    seed: Seed = None
    stop: StopStrings = ()
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    # vLLM's
    top_k: TopK = None
    min_p: float | None = within("min_p")
    repetition_penalty: float | None = within("repetition_penalty")
    min_tokens: Count | None = None
    stop_token_ids: list[Count] | None = Field(default=None, max_length=MAX_STOP_TOKENS, fail_fast=True)
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    # Paceline's
    speculation: SpeculationOptions | None = None
    # These fields cannot change the text.
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    priority: SignedCount | None = None
    # These fields ask for what is done anyway; values that would change the text are refused.
    skip_special_tokens: Annotated[bool | None, only(None, True)] = None
    spaces_between_special_tokens: bool | None = None
    use_beam_search: Annotated[bool | None, only(None, False)] = None
    length_penalty: Annotated[float | None, only(None, 1.0)] = None
    truncate_prompt_tokens: Annotated[int | None, only(None)] = None
    prompt_logprobs: Annotated[int | None, only(None)] = None
    allowed_token_ids: Annotated[list[int] | None, only(None)] = None
    bad_words: Annotated[list[str] | None, only(None, [])] = None

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise _field_error("stream_options", "it is only allowed if stream is true")
        limit = self.token_limit
        if limit is not None and (self.min_tokens or 0) > limit:
            raise _field_error("min_tokens", f"it exceeds the limit of {limit} tokens, lower it or raise max_tokens")
        return self

    @property
    def token_limit(self) -> int | None:
        """The most tokens to generate; None generates until the context is full."""
        return self.max_tokens

    @property
    def num_choices(self) -> int:
        """The number of choices for each prompt."""
        return self.n or 1

    @property
    def has_usage_chunk(self) -> bool:
        """Whether the stream ends with a chunk that has the usage."""
        return bool(self.stream_options is not None and self.stream_options.include_usage)

    @property
    def has_usage_in_chunks(self) -> bool:
        """Whether every chunk of the stream has the usage so far."""
        return bool(self.has_usage_chunk and self.stream_options and self.stream_options.continuous_usage_stats)


class ChatMessage(_Strict):
    """One message of a chat; the role `developer` is the newer name of `system`."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: MessageContent = None
    reasoning_content: Reasoning = None
    reasoning: Reasoning = None
    thinking: Reasoning = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Annotated[list[Any] | None, only(None, [])] = None
    function_call: Annotated[Any, only(None)] = None
    audio: Annotated[Any, only(None)] = None
    refusal: Annotated[str | None, only(None)] = None
    annotations: Annotated[list[Any] | None, only(None, [])] = None


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
    tools: Annotated[list[Any] | None, only(None, [])] = None
    tool_choice: Annotated[Any, only(None, "none", "auto")] = None
    functions: Annotated[list[Any] | None, only(None, [])] = None
    function_call: Annotated[Any, only(None, "none", "auto")] = None
    parallel_tool_calls: bool | None = None
    modalities: Annotated[list[str] | None, only(None, ["text"])] = None
    audio: Annotated[Any, only(None)] = None
    prediction: dict[str, Any] | None = None  # a hint for drafting: it cannot change the text
    reasoning_effort: Annotated[str | None, only(None)] = None
    verbosity: Annotated[str | None, only(None, "medium")] = None
    web_search_options: Annotated[Any, only(None)] = None

    @model_validator(mode="after")
    def _check_chat(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise _field_error("top_logprobs", "it is only allowed if logprobs is true")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise _field_error("max_tokens", "it differs from max_completion_tokens, its newer name: send only one")
        if reserved := _RESERVED_TEMPLATE_NAMES.intersection(self.chat_template_kwargs or ()):
            raise _field_error("chat_template_kwargs", f"{min(reserved)} is not a variable that a request may set")
        for index, message in enumerate(self.messages):
            if message.content is None:
                raise _field_error(f"messages[{index}].content", "every message needs a content")
        return self

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
    suffix: Annotated[str | None, only(None, "")] = None
    add_special_tokens: Annotated[bool | None, only(None, True)] = None

    @model_validator(mode="after")
    def _check_completion(self) -> Self:
        if self.best_of not in (None, 1, self.num_choices):
            raise _field_error("best_of", "only 1 or the value of n is supported, leave it out")
        if self.echo and self.logprobs is not None:
            raise _field_error("echo", "log-probabilities of the prompt are not supported, send echo or logprobs")
        return self

    @property
    def token_limit(self) -> int:
        """The most tokens to generate."""
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        """The number of most likely tokens to report beside each token; None reports no log-probabilities."""
        return self.logprobs


def _field_error(param: str, reason: str) -> PydanticCustomError:
    """Returns an error about several fields together; pydantic itself would not give it a field's name."""
    return PydanticCustomError("invalid_value", reason, {"param": param})
