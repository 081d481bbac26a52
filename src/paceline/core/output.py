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
    """What speculation did for a sequence so far. `by_drafter` has the tokens that each drafter drafted, and how many
    of them were accepted. Where nothing was drafted, `reason` says why."""

    num_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    by_drafter: dict[str, tuple[int, int]] = {}
    reason: str | None = None


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What one sequence has produced since its last output.

    `token_ids` are the newly committed tokens, and `first_token_index` is the index of the first of them among all
    output tokens. `text` is the text that they complete; incomplete UTF-8 characters and possible stop strings are held
    back until they are decided. `epoch` counts the engine's restarts, so that a receiver can drop outputs from before a
    restart. `finish_reason` is set on a sequence's last output. `stop_reason` is then the stop string or stop token id
    that ended it; None means end-of-sequence. `prompt_logprobs` has the entries of all prompt tokens but the first; it
    is set on the first output of a request that asks for them.
    `num_read_tokens` is set on outputs without tokens, which say how much of the prompt is read.
    """

    request_id: str
    epoch: int
    first_token_index: int
    token_ids: list[int]
    text: str = ""
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    num_cached_tokens: int = 0
    num_read_tokens: int | None = None
    speculation: SpeculationStats = SpeculationStats()
