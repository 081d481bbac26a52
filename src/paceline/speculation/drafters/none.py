"""`NoDrafter`: the null object; every draft is empty, which is plain decoding."""

from __future__ import annotations

from paceline.core import Draft, Plan, Sequence, Verdict


class NoDrafter:
    """Proposes nothing and remembers nothing."""

    name = "none"
    is_free = True

    def begin(self, sequence: Sequence) -> None:
        """Does nothing."""

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> list[Draft]:
        """Empty drafts."""
        return [Draft() for _ in sequences]

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:
        """Does nothing."""

    def end(self, sequence: Sequence) -> None:
        """Does nothing."""
