"""`RequestState`: everything the engine holds for one request beside its plain `Sequence`.

Drafters and verifier see the `Sequence` alone; text, stop tests, the sampler and block hashes stay here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.core import Sequence, SpeculationMode, SpeculationStats
from paceline.core.draft import NO_ROOM
from paceline.engine.text_stream import TextStream
from paceline.sampling.sequence_sampler import SequenceSampler


@dataclass(slots=True, eq=False)
class RequestState:
    """One request in the engine.

    `max_length` is the number of tokens, prompt included, at which it ends for length. `block_hashes` are those of the
    leading blocks of its table known to the prefix cache. `by_drafter` counts drafted and accepted tokens.
    `reason` says why the latest step that could draft did not, or that none could.
    """

    sequence: Sequence
    stream: TextStream
    sampler: SequenceSampler
    max_length: int
    block_hashes: list[bytes] = field(default_factory=list)
    num_preemptions: int = 0
    by_drafter: dict[str, tuple[int, int]] = field(default_factory=dict)
    reason: str | None = NO_ROOM

    @property
    def max_window(self) -> int:
        """Draft tokens that could still be committed before the last token of all."""
        return max(0, self.max_length - len(self.sequence.token_ids) - 1)

    @property
    def speculation(self) -> SpeculationStats:
        """What drafts did for this request so far."""
        return SpeculationStats(
            num_steps=self.sequence.num_steps,
            num_draft_tokens=self.sequence.num_draft_tokens,
            num_accepted_tokens=self.sequence.num_accepted_tokens,
            by_drafter=dict(self.by_drafter),
            reason=self._reason,
        )

    @property
    def _reason(self) -> str | None:
        speculation = self.sequence.request.speculation
        if speculation.mode is SpeculationMode.OFF or speculation.max_window == 0 or speculation.drafters == ():
            return "request"
        return None if self.sequence.num_draft_tokens else self.reason
