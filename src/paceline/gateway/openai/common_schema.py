"""The fields that chat completions and text completions share, and the rule for unknown fields."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paceline.core import Constraint, SpeculationMode, SpeculationParams
from paceline.gateway.http.field_types import (
    Count,
    LogitBias,
    NoEffect,
    PositiveCount,
    Seed,
    SignedCount,
    StopStrings,
    TopK,
    only,
    within,
)
from paceline.gateway.http.strict_body import StrictBody, field_error
from paceline.gateway.openai.form_schema import Choices, ResponseFormat

MAX_CHOICES = 128
MAX_STOP_TOKENS = 1024


class StreamOptions(StrictBody):
    """Options of a stream. `include_obfuscation` is accepted, but no padding against traffic analysis is added.

    `continuous_usage_stats`, a field of vLLM, puts the usage so far into every chunk if `include_usage` is true too.
    `include_drafted`, Paceline's own, says beside each log-probability of a chat whether a draft had guessed the token.
    """

    include_usage: bool | None = None
    include_obfuscation: NoEffect[bool | None] = None
    continuous_usage_stats: bool | None = None
    include_drafted: bool | None = None


class SpeculationOptions(StrictBody):
    """Paceline's own options: whether to draft, how far and with which drafters. They never change the text."""

    mode: Literal["auto", "off"] = "auto"
    max_window: Count | None = None
    drafters: list[str] | None = Field(default=None, fail_fast=True)

    @property
    def params(self) -> SpeculationParams:
        """The options as the engine's type."""
        return SpeculationParams(
            mode=SpeculationMode(self.mode),
            max_window=self.max_window,
            drafters=None if self.drafters is None else tuple(self.drafters),
        )


class GenerationFields(StrictBody):
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
    # The form of the answer: at most one of these and of a response_format.
    regex: str | None = Field(default=None, min_length=1)
    grammar: str | None = Field(default=None, min_length=1)
    choice: Choices | None = None
    # vLLM's
    top_k: TopK = None
    min_p: float | None = within("min_p")
    repetition_penalty: float | None = within("repetition_penalty")
    min_tokens: Count | None = None
    stop_token_ids: list[Count] | None = Field(default=None, max_length=MAX_STOP_TOKENS, fail_fast=True)
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    return_progress: bool | None = None  # llama-server's
    # Paceline's
    speculation: SpeculationOptions | None = None
    user: NoEffect[str | None] = None
    metadata: NoEffect[dict[str, Any] | None] = None
    store: NoEffect[bool | None] = None
    service_tier: NoEffect[str | None] = None
    safety_identifier: NoEffect[str | None] = None
    prompt_cache_key: NoEffect[str | None] = None
    prompt_cache_retention: NoEffect[str | None] = None
    priority: NoEffect[SignedCount | None] = None
    # These fields ask for what is done anyway; values that would change the text are refused.
    skip_special_tokens: Annotated[bool | None, only(None, True)] = None
    spaces_between_special_tokens: NoEffect[bool | None] = None
    use_beam_search: Annotated[bool | None, only(None, False)] = None
    length_penalty: Annotated[float | None, only(None, 1.0)] = None
    truncate_prompt_tokens: Annotated[int | None, only(None)] = None
    prompt_logprobs: Annotated[int | None, only(None)] = None
    allowed_token_ids: Annotated[list[int] | None, only(None)] = None
    bad_words: Annotated[list[str] | None, only(None, [])] = None

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise field_error("stream_options", "it is only allowed if stream is true")
        limit = self.token_limit
        if limit is not None and (self.min_tokens or 0) > limit:
            raise field_error("min_tokens", f"it exceeds the limit of {limit} tokens, lower it or raise max_tokens")
        if len(fields := self._form_fields()) > 1:
            raise field_error(fields[1], f"{fields[0]} already sets the form of the answer, send only one")
        if fields and self.min_tokens:
            raise field_error("min_tokens", f"with {fields[0]}, the answer ends where its form ends, leave it out")
        return self

    @property
    def constraint(self) -> Constraint | None:
        """The form of the answer; None means free text."""
        if self.response_format is not None and self.response_format.type != "text":
            return self.response_format.constraint
        choices = None if self.choice is None else json.dumps(self.choice)
        sources = {"regex": self.regex, "grammar": self.grammar, "choice": choices}
        given = ((name, source) for name, source in sources.items() if source is not None)
        return next((Constraint(kind=name, source=source, field=name) for name, source in given), None)

    def _form_fields(self) -> list[str]:
        """Returns the names of the fields that ask for a form."""
        values = {"regex": self.regex, "grammar": self.grammar, "choice": self.choice}
        fields = [name for name, value in values.items() if value is not None]
        is_form = self.response_format is not None and self.response_format.type != "text"
        return ["response_format", *fields] if is_form else fields

    @property
    def token_limit(self) -> int | None:
        """The most tokens to generate; None generates until the context is full."""
        return self.max_tokens

    @property
    def has_prompt_logprobs(self) -> bool:
        """Whether the prompt's tokens get log-probabilities too."""
        return False

    @property
    def num_choices(self) -> int:
        """The number of choices for each prompt."""
        return self.n or 1

    @property
    def has_usage_chunk(self) -> bool:
        """Whether the stream ends with a chunk that has the usage."""
        return bool(self.stream_options is not None and self.stream_options.include_usage)

    @property
    def has_drafted(self) -> bool:
        """Whether the log-probabilities in a stream say which tokens a draft had guessed."""
        return bool(self.stream_options is not None and self.stream_options.include_drafted)

    @property
    def has_usage_in_chunks(self) -> bool:
        """Whether every chunk of the stream has the usage so far."""
        return bool(self.has_usage_chunk and self.stream_options and self.stream_options.continuous_usage_stats)
