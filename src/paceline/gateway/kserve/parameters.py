"""`GenerateParameters`: what a request may set beside its text, under the names of Triton's vLLM and TensorRT-LLM
backends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, ValidationError

from paceline.core.errors import InvalidRequestError
from paceline.gateway.http.body_parsing import as_request_error
from paceline.gateway.http.field_types import Count, NoEffect, PositiveCount, Seed, StopStrings, TopK, only, within
from paceline.gateway.http.strict_body import StrictBody
from paceline.gateway.sampling_fields import given

DEFAULT_MAX_TOKENS = 16


def _number(value: object) -> object:
    """Returns the number in a text, as clients of Triton's vLLM backend send it; other values stay as they are."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _words(value: object) -> object:
    """Returns a list of words without empty ones, which mean that there are none."""
    words = [value] if isinstance(value, str) else value
    return [word for word in words if word != ""] if isinstance(words, list | tuple) else words


Number = BeforeValidator(_number, json_schema_input_type=Any)


class GenerateParameters(StrictBody):
    """The parameters of a generation. Unless `exclude_input_in_output` says otherwise, a whole answer begins with its
    prompt, and a streamed one does not; so do Triton's backends."""

    model_config = ConfigDict(strict=False)

    stream: Annotated[bool | None, Number] = None
    exclude_input_in_output: Annotated[bool | None, Number] = None
    return_finish_reason: Annotated[bool | None, Number] = None
    return_num_input_tokens: Annotated[bool | None, Number] = None
    return_num_output_tokens: Annotated[bool | None, Number] = None
    max_tokens: Annotated[PositiveCount | None, Number] = None
    min_tokens: Annotated[Count | None, Number] = None
    min_length: Annotated[Count | None, Number] = None
    temperature: Annotated[float | None, Number] = within("temperature")
    top_k: Annotated[TopK, Number] = None
    top_p: Annotated[float | None, Number] = within("top_p")
    min_p: Annotated[float | None, Number] = within("min_p")
    repetition_penalty: Annotated[float | None, Number] = within("repetition_penalty")
    presence_penalty: Annotated[float | None, Number] = within("presence_penalty")
    frequency_penalty: Annotated[float | None, Number] = within("frequency_penalty")
    seed: Annotated[Seed, Number] = None
    random_seed: Annotated[Seed, Number] = None
    stop: Annotated[StopStrings, BeforeValidator(_words)] = ()
    stop_words: Annotated[StopStrings, BeforeValidator(_words)] = ()
    ignore_eos: Annotated[bool | None, Number] = None
    bad_words: Annotated[Any, BeforeValidator(_words), only(None, [])] = None
    n: Annotated[int | None, Number, only(None, 1)] = None
    beam_width: Annotated[int | None, Number, only(None, 1)] = None
    return_log_probs: Annotated[bool | None, Number, only(None, False)] = None
    return_context_logits: Annotated[bool | None, Number, only(None, False)] = None
    return_generation_logits: Annotated[bool | None, Number, only(None, False)] = None
    end_id: NoEffect[Any] = None
    priority: NoEffect[Any] = None
    timeout: NoEffect[Any] = None
    pad_id: NoEffect[Any] = None

    @property
    def sampling(self) -> dict[str, Any]:
        """The sampling parameters that are set, by their names in `SamplingParams`."""
        return given(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            max_tokens=DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens,
            min_tokens=self.min_tokens if self.min_tokens is not None else self.min_length,
            seed=self.seed if self.seed is not None else self.random_seed,
            stop=self.stop or self.stop_words,
            ignore_eos=bool(self.ignore_eos),
        )


def parse_parameters(values: Mapping[str, Any]) -> GenerateParameters:
    """Returns the parameters; raises InvalidRequestError for the first error in them."""
    try:
        return GenerateParameters.model_validate(dict(values))
    except ValidationError as error:
        raise as_request_error(error) from error


def parse_sampling_text(text: str) -> dict[str, Any]:
    """Returns the object in the tensor `sampling_parameters`; raises InvalidRequestError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidRequestError("sampling_parameters is not a json object", "sampling_parameters", "invalid_value")
    return found
