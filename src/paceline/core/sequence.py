"""`Sequence`: a request's mutable state in the engine; only the scheduler writes it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from paceline.core.output import FinishReason
from paceline.core.request import Request, SpeculationMode


class SequenceStatus(enum.StrEnum):
    """Where a sequence is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """One choice being generated.

    `token_ids` is prompt plus output. `num_computed_tokens` counts the leading tokens whose KV is in `block_table`'s
    blocks; draft tokens are not counted. `seed` is the request's, or one that was drawn for it.
    """

    request: Request
    seed: int
    token_ids: list[int]
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    block_table: list[int] = field(default_factory=list)
    status: SequenceStatus = SequenceStatus.WAITING
    finish_reason: FinishReason | None = None
    num_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0

    @property
    def sequence_id(self) -> str:
        """The request's id, unique in the engine."""
        return self.request.request_id

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens the client sent."""
        return len(self.request.prompt_token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Committed tokens after the prompt, resumed ones included."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_uncomputed_tokens(self) -> int:
        """Tokens whose KV is still to be computed: 1 while decoding, more while prefilling."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def is_prefilling(self) -> bool:
        """Whether more than the last token awaits its forward pass."""
        return self.num_uncomputed_tokens > 1

    @property
    def is_finished(self) -> bool:
        """Whether no more tokens will be committed."""
        return self.status is SequenceStatus.FINISHED

    def usable_window(self, num_speculative_tokens: int) -> int:
        """Returns the largest window, up to `num_speculative_tokens`, that the request allows and can use. A step
        commits one token besides the draft's, so the window is below the tokens left until `max_tokens`."""
        request = self.request
        if request.speculation.mode is SpeculationMode.OFF:
            return 0
        limits = [num_speculative_tokens]
        if request.speculation.max_window is not None:
            limits.append(request.speculation.max_window)
        if request.sampling.max_tokens is not None:
            limits.append(request.sampling.max_tokens - self.num_output_tokens - 1)
        return max(0, min(limits))
