"""Checks of requests: every value that could break a step is refused before it reaches the scheduler.

Gateway and engine call the same functions, so that both refuse a request with the same message.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from paceline.core import Request, SamplingParams, SpeculationParams
from paceline.core.errors import ContextOverflowError, InvalidRequestError
from paceline.sampling.parameters import (
    RANGES,
    check_range,
    check_sampling_params,
    check_text,
    check_token_ids,
    normalize,
)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What the loaded model allows, in tokens, and the names that a request may give as its drafters."""

    vocab_size: int
    context_window_size: int
    drafter_names: frozenset[str] = frozenset()


def check_request(request: Request, limits: RequestLimits) -> Request:
    """Returns the request with all parameters in their declared types.

    Raises InvalidRequestError for a value that cannot be honoured, ContextOverflowError for a prompt that is too long.
    """
    sampling = normalize(request.sampling, SamplingParams)
    speculation = normalize(request.speculation, SpeculationParams)
    check_text("tenant", request.tenant)
    if not request.prompt_token_ids:
        raise InvalidRequestError("the prompt is empty; send at least one token", "prompt", "empty_prompt")
    check_token_ids(request.prompt_token_ids, "prompt", limits.vocab_size)
    check_token_ids(request.resumed_token_ids, "resumed_token_ids", limits.vocab_size)
    check_room(len(request.prompt_token_ids), limits.context_window_size)
    check_sampling_params(sampling, limits.vocab_size)
    check_range("choice_index", request.choice_index, RANGES["choice_index"])
    check_speculation(speculation, limits.drafter_names)
    _check_min_tokens(sampling, limits.context_window_size - len(request.prompt_token_ids))
    return structs.replace(request, sampling=sampling, speculation=speculation)


def check_room(
    num_tokens: int, context_window_size: int, *, subject: str = "the prompt", param: str = "prompt"
) -> None:
    """Raises ContextOverflowError if the context window has no room for one more token after `num_tokens`."""
    if num_tokens + 1 > context_window_size:
        raise overflow(f"{subject} has {num_tokens} tokens", context_window_size, param)


def overflow(fact: str, context_window_size: int, param: str) -> ContextOverflowError:
    """Returns the error for a prompt that is too long; its message begins with `fact`, which says how long it is."""
    return ContextOverflowError(
        f"{fact}, which leaves no room for an answer in the context window of {context_window_size} tokens; shorten "
        "it, or choose a larger --context-window-size",
        param,
        "context_length_exceeded",
    )


def check_speculation(speculation: SpeculationParams, drafter_names: frozenset[str]) -> None:
    """Raises InvalidRequestError for a `max_window` out of range, or for a name that is not in `drafter_names`."""
    check_range("max_window", speculation.max_window, RANGES["max_window"])
    for name in speculation.drafters or ():
        if name not in drafter_names:
            known = ", ".join(sorted(drafter_names)) or "none"
            raise InvalidRequestError(
                f"{name!r} is not a drafter; known are: {known}", "speculation.drafters", "invalid_value"
            )


def _check_min_tokens(sampling: SamplingParams, room: int) -> None:
    limit = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
    if sampling.min_tokens > limit:
        raise InvalidRequestError(
            f"min_tokens is {sampling.min_tokens}, but at most {limit} tokens may follow this prompt; lower it",
            "min_tokens",
            "invalid_value",
        )
