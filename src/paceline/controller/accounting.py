"""`SpeculationTimes`: where the time of decoding steps went, and what plain decoding would have taken instead.

The promise "never slower" is judged by it: the time spent on drafts of which nothing was accepted is counted exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class SpeculationTimes:
    """Sums in seconds over the steps that had plans.

    `step_s` is all of their time, and `drafting_s` the part of each drafter. `wasted_s` is the cost of drafts of which
    nothing was accepted: the drafter's time, and the share of the target's pass that their rows added. The time of
    reading a text is wasted if no draft after it had a token accepted, which is known when the sequence has ended. A
    drafter that pays has wasted drafts too; `lost_s` adds up how much drafters cost more than they saved, over the
    pairs of a drafter and an ended sequence where they did. `plain_s` is the predicted time of plain decoding for the
    same tokens, to be compared with `compared_s`.
    """

    step_s: float = 0.0
    wasted_s: float = 0.0
    lost_s: float = 0.0
    plain_s: float = 0.0
    compared_s: float = 0.0
    drafting_s: dict[str, float] = field(default_factory=dict)

    def add(self, drafting_s: Mapping[str, float], target_s: float) -> None:
        """Counts one step."""
        for name, seconds in drafting_s.items():
            self.drafting_s[name] = self.drafting_s.get(name, 0.0) + seconds
        self.step_s += target_s + sum(drafting_s.values())

    @property
    def lost_share(self) -> float:
        """As a share of all step time."""
        return self.lost_s / self.step_s if self.step_s else 0.0

    @property
    def wasted_share(self) -> float:
        """As a share of all step time."""
        return self.wasted_s / self.step_s if self.step_s else 0.0
