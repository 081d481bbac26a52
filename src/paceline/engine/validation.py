"""Which requests an engine takes: every value that could poison a step is refused before it reaches the scheduler."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real

import msgspec

from paceline.core import Request, SamplingParams, SpeculationParams
from paceline.core.errors import ContextOverflowError, InvalidRequestError
from paceline.models.sampling import check_sampling_params

MAX_SEED = 2**64 - 1
MAX_CHOICE_INDEX = 2**32 - 1
_FIELD = re.compile(r"\$\.(\w+)")  # in the path that an error of msgspec names


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What the loaded model allows, in tokens."""

    vocab_size: int
    context_window_size: int


def check_request(request: Request, limits: RequestLimits) -> None:
    """Raises InvalidRequestError for a value that cannot be honoured, ContextOverflowError for too long a prompt."""
    _check_is_tuple("stop", request.sampling.stop)
    _check_is_tuple("drafters", request.speculation.drafters)
    _check_types(request.sampling)
    _check_types(request.speculation)
    if not request.prompt_token_ids:
        raise InvalidRequestError("the prompt is empty; send at least one token", "prompt")
    _check_token_ids(request.prompt_token_ids, "prompt", limits)
    _check_token_ids(request.resumed_token_ids, "resumed_token_ids", limits)
    _check_token_ids(request.sampling.stop_token_ids, "stop_token_ids", limits)
    num_prompt_tokens = len(request.prompt_token_ids)
    if num_prompt_tokens + 1 > limits.context_window_size:
        raise ContextOverflowError(
            f"the prompt has {num_prompt_tokens} tokens, which leaves no room for an answer in a context of "
            f"{limits.context_window_size}; shorten it or serve with a larger --context-window-size",
            "prompt",
            "context_length_exceeded",
        )
    if request.speculation.max_window is not None and request.speculation.max_window < 0:
        raise InvalidRequestError(
            f"speculation.max_window is {request.speculation.max_window}; it must be at least 0", "speculation"
        )
    if not 0 <= request.choice_index <= MAX_CHOICE_INDEX:
        raise InvalidRequestError(
            f"choice_index is {request.choice_index}; it must be between 0 and {MAX_CHOICE_INDEX}", "choice_index"
        )
    _check_sampling(request.sampling, limits)
    _check_min_tokens(request.sampling, limits.context_window_size - num_prompt_tokens)


def _check_is_tuple(name: str, texts: tuple[str, ...] | None) -> None:
    """Raises InvalidRequestError for a text alone, which would be taken for as many as it has characters."""
    if isinstance(texts, str):
        raise InvalidRequestError(f"{name} is a single text; pass a tuple of texts, ({texts!r},) for one", name)


def _check_types(params: SamplingParams | SpeculationParams) -> None:
    """Of the fields; what is made in this process may hold anything."""
    try:
        msgspec.convert(msgspec.to_builtins(params, enc_hook=_plain_number), type(params))
    except (msgspec.ValidationError, TypeError) as error:
        message, _, place = str(error).partition(" - at ")
        found = _FIELD.search(place)
        name = found[1] if found else None
        raise InvalidRequestError(f"{name or 'a parameter'}: {message[:1].lower() + message[1:]}", name) from error


def _plain_number(value: object) -> int | float:
    """Of numpy, say."""
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"a value of type {type(value).__name__} is not understood")


def _check_sampling(sampling: SamplingParams, limits: RequestLimits) -> None:
    check_sampling_params(sampling, limits.vocab_size)
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise InvalidRequestError(f"max_tokens is {sampling.max_tokens}; it must be at least 1", "max_tokens")
    if not all(sampling.stop):
        raise InvalidRequestError("stop contains an empty string; leave it out", "stop")
    if sampling.seed is not None and not 0 <= sampling.seed <= MAX_SEED:
        raise InvalidRequestError(f"seed is {sampling.seed}; it must be between 0 and {MAX_SEED}", "seed")


def _check_min_tokens(sampling: SamplingParams, room: int) -> None:
    limit = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
    if sampling.min_tokens > limit:
        raise InvalidRequestError(
            f"min_tokens is {sampling.min_tokens}, but at most {limit} tokens may follow this prompt; lower it",
            "min_tokens",
            "invalid_value",
        )


def _check_token_ids(token_ids: Iterable[int], param: str, limits: RequestLimits) -> None:
    for token_id in token_ids:
        if not 0 <= token_id < limits.vocab_size:
            raise InvalidRequestError(
                f"{param} contains token id {token_id}; the vocabulary has ids 0 to {limits.vocab_size - 1}", param
            )
