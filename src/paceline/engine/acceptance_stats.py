"""`AcceptanceStats`: counts how much was drafted and accepted, in total, by depth, by draft size and by drafter."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.core import DrafterStats


@dataclass(slots=True)
class DraftCounts:
    """Counters since the start. `num_drafts` counts the drafts that were not empty; `accepted_per_position[i]` counts
    the drafts whose node at depth i was accepted."""

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)

    @property
    def acceptance_rate(self) -> float | None:
        """The number of accepted tokens per drafted token; None before the first draft."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    def record(self, num_drafted: int, num_accepted: int) -> None:
        """Counts one draft that is not empty."""
        self.num_drafts += 1
        self.num_draft_tokens += num_drafted
        self.num_accepted_tokens += num_accepted
        self.accepted_per_position += [0] * (num_accepted - len(self.accepted_per_position))
        for depth in range(num_accepted):
            self.accepted_per_position[depth] += 1

    def snapshot(self, drafting_s: float) -> DrafterStats:
        """Returns the counters, together with the time that proposing took."""
        return DrafterStats(
            num_drafts=self.num_drafts,
            num_draft_tokens=self.num_draft_tokens,
            num_accepted_tokens=self.num_accepted_tokens,
            num_accepted_per_position=tuple(self.accepted_per_position),
            drafting_s=drafting_s,
        )


@dataclass(slots=True)
class AcceptanceStats:
    """The counters of all drafts, and those of each drafter.

    `num_verdicts` counts the verdicts of all sequences and steps, with or without a draft. `num_committed` is the
    number of tokens that they committed. `num_per_size[n]` counts the verdicts on a draft of n nodes.
    """

    total: DraftCounts = field(default_factory=DraftCounts)
    by_drafter: dict[str, DraftCounts] = field(default_factory=dict)
    num_verdicts: int = 0
    num_committed: int = 0
    num_per_size: list[int] = field(default_factory=list)

    def record(self, drafter: str, num_drafted: int, num_accepted: int, num_committed: int) -> None:
        """Counts one verdict."""
        self.num_verdicts += 1
        self.num_committed += num_committed
        self.num_per_size += [0] * (num_drafted + 1 - len(self.num_per_size))
        self.num_per_size[num_drafted] += 1
        if num_drafted > 0:
            self.total.record(num_drafted, num_accepted)
            self.by_drafter.setdefault(drafter, DraftCounts()).record(num_drafted, num_accepted)
