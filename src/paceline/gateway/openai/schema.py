"""What clients may send: every field is honoured, or cannot change the text, or is refused by its name.

Absent and null mean the same. Fields beyond OpenAI's are vLLM's, with vLLM's meaning, and `speculation`.
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
    """Refuses unknown fields by hand: pydantic would make an error of each, which takes minutes for a hostile body."""

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
    """How a stream looks; padding against traffic analysis is accepted and not added.

    `continuous_usage_stats`, which is vLLM's, puts the usage so far into every chunk, where `include_usage` asks for
    usage at all.
    """

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class ResponseFormat(_Strict):
    """The form of the answer: plain text only."""

    type: Annotated[str, only("text")]


class SpeculationOptions(_Strict):
    """Paceline's own: whether, how far and with which drafters to draft; never changes the text."""

    mode: Literal["auto", "off"] = "auto"
    max_window: Count | None = None
    drafters: list[str] | None = Field(default=None, fail_fast=True)

    @property
    def speculation_mode(self) -> SpeculationMode:
        """The mode as the engine's word."""
        return SpeculationMode(self.mode)


class GenerationFields(_Strict):
    """What chat and text completions share."""

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
    # These cannot change the text.
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    priority: SignedCount | None = None
    # These are what is done anyhow.
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
            raise _field_error("stream_options", "it needs stream to be true")
        limit = self.token_limit
        if limit is not None and (self.min_tokens or 0) > limit:
            raise _field_error("min_tokens", f"it is larger than the limit of {limit}, lower it or raise max_tokens")
        return self

    @property
    def token_limit(self) -> int | None:
        """Tokens to generate at most; None until the context is full."""
        return self.max_tokens

    @property
    def num_choices(self) -> int:
        """Choices per prompt."""
        return self.n or 1

    @property
    def has_usage_chunk(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return bool(self.stream_options is not None and self.stream_options.include_usage)

    @property
    def has_usage_in_chunks(self) -> bool:
        """Whether every chunk of a stream says what was used so far."""
        return bool(self.has_usage_chunk and self.stream_options and self.stream_options.continuous_usage_stats)


class ChatMessage(_Strict):
    """One message; `developer` is the newer word for `system`."""

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
            raise _field_error("top_logprobs", "it needs logprobs to be true")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise _field_error("max_tokens", "it differs from max_completion_tokens, its newer name: send one of them")
        if reserved := _RESERVED_TEMPLATE_NAMES.intersection(self.chat_template_kwargs or ()):
            raise _field_error("chat_template_kwargs", f"{min(reserved)} is not a variable that a request may set")
        for index, message in enumerate(self.messages):
            if message.content is None:
                raise _field_error(f"messages[{index}].content", "a message needs a content")
        return self

    @property
    def token_limit(self) -> int | None:
        """Tokens to generate at most; None until the context is full."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        """Most likely tokens to report beside each token; None reports nothing."""
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
        """Tokens to generate at most."""
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        """Most likely tokens to report beside each token; None reports nothing."""
        return self.logprobs


def _field_error(param: str, reason: str) -> PydanticCustomError:
    """An error of several fields together, which pydantic would not give a field's name."""
    return PydanticCustomError("invalid_value", reason, {"param": param})
