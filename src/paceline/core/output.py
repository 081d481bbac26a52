"""What a sequence produced in one step, as plain immutable data that crosses process borders through msgspec."""

from __future__ import annotations

import enum

import msgspec


class FinishReason(enum.StrEnum):
    """Why a sequence ended; the first two are OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class TokenLogprob(msgspec.Struct, frozen=True):
    """Log-probability of one committed token in the raw model distribution, and of the most likely tokens there."""

    token_id: int
    logprob: float
    top: list[tuple[int, float]] = []


class SpeculationStats(msgspec.Struct, frozen=True, kw_only=True):
    """What speculation did for a sequence so far: target steps, tokens drafted and accepted, in total and by
    drafter. Where nothing was drafted, `reason` says why."""

    num_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    by_drafter: dict[str, tuple[int, int]] = {}
    reason: str | None = None


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """News of one sequence.

    `token_ids` are the newly committed tokens and `first_token_index` the index of the first of them among all output
    tokens; `text` is the text they complete (half UTF-8 and possible stop strings are held back until decided). `epoch`
    counts the engine's restarts, so a receiver can drop what an older engine said. `finish_reason` is set on the last
    output of a sequence; `stop_reason` then is the stop string or stop token id that ended it, None for
    end-of-sequence.
    """

    request_id: str
    epoch: int
    first_token_index: int
    token_ids: list[int]
    text: str = ""
    logprobs: list[TokenLogprob] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    num_cached_tokens: int = 0
    speculation: SpeculationStats = SpeculationStats()
