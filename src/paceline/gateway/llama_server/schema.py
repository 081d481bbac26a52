"""The request bodies of llama-server's API. A field is honoured, or marked as having no effect, or refused."""

from __future__ import annotations

import json
from typing import Annotated, Any, Self

from pydantic import Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from paceline.core import Constraint
from paceline.gateway.http.field_types import (
    MAX_COUNT,
    Count,
    NoEffect,
    StopStrings,
    Text,
    TopK,
    check_logit_bias,
    only,
    within,
)
from paceline.gateway.http.strict_body import StrictBody, field_error
from paceline.gateway.sampling_fields import given

MAX_FILES = 256
MAX_TEXT_LENGTH = 1_000_000  # characters, or tokens, that are converted at a time
_NO_LIMIT = -1


def _bias_pairs(value: Any) -> dict[int, float]:  # noqa: ANN401 - a JSON value
    """Converts an object, or a list of pairs of a token id and a bias. A bias of false forbids the token."""
    if not isinstance(value, list):
        return check_logit_bias(value)
    if not all(isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is int for pair in value):
        raise PydanticCustomError("invalid_value", "it must be a list of pairs of a token id and a bias")
    return check_logit_bias({str(token_id): -100.0 if bias is False else bias for token_id, bias in value})


class GenerationFields(StrictBody):
    """The fields that /completion and /infill share. `n_predict` -1 means no limit; 0 only reads the prompt.

    Samplers are applied in the order of docs/architecture.md, whatever `samplers` says. The penalty of repetitions
    counts the whole text, whatever `repeat_last_n` says. `cache_prompt` has no effect: prefixes are always cached.
    """

    model: str | None = None
    n_predict: int | None = Field(default=None, ge=_NO_LIMIT, le=MAX_COUNT)
    max_tokens: int | None = Field(default=None, ge=_NO_LIMIT, le=MAX_COUNT)
    stream: bool | None = None
    seed: Annotated[int | None, Field(ge=-1, lt=2**64)] = None
    temperature: float | None = within("temperature")
    top_k: TopK = None
    top_p: float | None = within("top_p")
    min_p: float | None = within("min_p")
    repeat_penalty: float | None = within("repetition_penalty")
    presence_penalty: float | None = within("presence_penalty")
    frequency_penalty: float | None = within("frequency_penalty")
    logit_bias: Annotated[
        dict[int, float],
        PlainValidator(_bias_pairs, json_schema_input_type=list[tuple[int, float | bool]] | dict[str, float] | None),
    ] = Field(default={})
    stop: StopStrings = ()
    ignore_eos: bool | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    response_fields: list[str] | None = Field(default=None, max_length=MAX_FILES)
    # These would change the answer.
    n_probs: Annotated[int | None, only(None, 0)] = None
    return_tokens: Annotated[bool | None, only(None, False)] = None
    typical_p: Annotated[float | None, only(None, 1.0)] = None
    mirostat: Annotated[int | None, only(None, 0)] = None
    dynatemp_range: Annotated[float | None, only(None, 0.0)] = None
    xtc_probability: Annotated[float | None, only(None, 0.0)] = None
    dry_multiplier: Annotated[float | None, only(None, 0.0)] = None
    lora: Annotated[list[Any] | None, only(None, [])] = None
    samplers: NoEffect[list[str] | str | None] = None
    repeat_last_n: NoEffect[int | None] = None
    cache_prompt: NoEffect[bool | None] = None
    id_slot: NoEffect[int | None] = None
    n_keep: NoEffect[int | None] = None
    n_discard: NoEffect[int | None] = None
    n_indent: NoEffect[Count | None] = None
    n_cache_reuse: NoEffect[int | None] = None
    min_keep: NoEffect[int | None] = None
    t_max_prompt_ms: NoEffect[int | None] = None
    t_max_predict_ms: NoEffect[int | None] = None
    return_progress: bool | None = None
    timings_per_token: NoEffect[bool | None] = None
    post_sampling_probs: NoEffect[bool | None] = None
    mirostat_tau: NoEffect[float | None] = None
    mirostat_eta: NoEffect[float | None] = None

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.grammar and self.json_schema is not None:
            raise field_error("json_schema", "grammar already sets the form of the answer, send only one")
        return self

    @property
    def token_limit(self) -> int | None:
        """The most tokens to generate; None means no limit."""
        limit = self.n_predict if self.n_predict is not None else self.max_tokens
        return None if limit == _NO_LIMIT else limit

    @property
    def sampling(self) -> dict[str, Any]:
        """The sampling parameters that are set, by their names in `SamplingParams`."""
        limit = self.token_limit
        return given(
            seed=None if self.seed == -1 else self.seed,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repeat_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            max_tokens=limit if limit is None else max(limit, 1),
            logit_bias=self.logit_bias,
            stop=self.stop,
            ignore_eos=bool(self.ignore_eos),
        )

    @property
    def constraint(self) -> Constraint | None:
        """The form of the answer; None means free text."""
        if self.json_schema is not None:
            return Constraint(kind="lenient_json_schema", source=json.dumps(self.json_schema), field="json_schema")
        return Constraint(kind="grammar", source=self.grammar, field="grammar") if self.grammar else None


def _prompt(value: Any) -> str | list[int]:  # noqa: ANN401 - a JSON value
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(type(one) is int and one >= 0 for one in value):
        return value
    raise PydanticCustomError("invalid_value", "it must be a text or a list of token ids")


class NativeCompletionRequest(GenerationFields):
    """The body of POST /completion."""

    prompt: Annotated[str | list[int], PlainValidator(_prompt, json_schema_input_type=str | list[int])]


class ExtraFile(StrictBody):
    """Another file of the project, or a part of it."""

    text: Text
    filename: Text = "file"
    time: NoEffect[int | None] = None


class InfillRequest(GenerationFields):
    """The body of POST /infill. `prompt` is the beginning of the text in the gap."""

    input_prefix: Text
    input_suffix: Text
    input_extra: list[ExtraFile] = Field(default=[], max_length=MAX_FILES, fail_fast=True)
    prompt: Text = ""


class TokenizeRequest(StrictBody):
    """The body of POST /tokenize."""

    content: Annotated[Text, Field(max_length=MAX_TEXT_LENGTH)]
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(StrictBody):
    """The body of POST /detokenize."""

    tokens: list[Count] = Field(max_length=MAX_TEXT_LENGTH, fail_fast=True)
