"""`AcceptanceStats`: how much was drafted and accepted, in total, by depth and by drafter."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class AcceptanceStats:
    """Counters since the start. `num_drafts` are drafts that were not empty; `accepted_per_position[i]` counts drafts
    whose node at depth i was accepted; `by_drafter` holds (drafted, accepted) tokens."""

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    by_drafter: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted tokens per drafted one; None before the first draft."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    def record(self, drafter: str, num_drafted: int, num_accepted: int) -> None:
        """Counts one draft; an empty one is not counted."""
        if num_drafted == 0:
            return
        self.num_drafts += 1
        self.num_draft_tokens += num_drafted
        self.num_accepted_tokens += num_accepted
        self.accepted_per_position += [0] * (num_accepted - len(self.accepted_per_position))
        for depth in range(num_accepted):
            self.accepted_per_position[depth] += 1
        drafted, accepted = self.by_drafter.get(drafter, (0, 0))
        self.by_drafter[drafter] = (drafted + num_drafted, accepted + num_accepted)
