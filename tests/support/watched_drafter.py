"""`WatchedDrafter`: a drafter that passes every call on to another drafter, so that tests can observe the calls."""

from __future__ import annotations

from paceline.core import Plan, Sequence, Verdict
from paceline.drafters.protocol import Drafter, Proposals


class WatchedDrafter(Drafter):
    """A drafter that does what `drafter` does, and has its name."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.name, self.is_free = drafter.name, drafter.is_free

    def begin(self, sequence: Sequence) -> None:
        self.drafter.begin(sequence)

    def num_missed(self, sequence: Sequence) -> int | None:
        return self.drafter.num_missed(sequence)

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        return self.drafter.propose(sequences, plans)

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:
        self.drafter.observe(sequences, verdicts)

    def end(self, sequence: Sequence) -> None:
        self.drafter.end(sequence)
