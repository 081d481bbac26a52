"""`SpeculationTimes`: what the time of decoding steps was spent on, and what plain decoding would have taken instead.

It shows whether the promise "never slower" is kept. The time spent on drafts without any accepted token is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class SpeculationTimes:
    """Sums in seconds over the steps that had plans.

    `step_s` is the time of the steps, and `drafting_s` is each drafter's part of it. `wasted_s` is the time of drafts
    without any accepted token: the drafter's time, and the time that their rows added to the target's pass. A prefill
    is wasted if no draft after it had an accepted token. It is added when the sequence has ended. Even a drafter that
    saves time has wasted drafts. `lost_s` is the time by which drafters cost more than they saved. It is summed over
    the ended sequences, for each drafter that lost time there. `compared_s` is the time of the steps without prompts,
    and `plain_s` is the predicted time of plain decoding for their tokens.
    """

    step_s: float = 0.0
    wasted_s: float = 0.0
    lost_s: float = 0.0
    plain_s: float = 0.0
    compared_s: float = 0.0
    drafting_s: dict[str, float] = field(default_factory=dict)

    def add(self, drafting_s: Mapping[str, float], target_s: float) -> None:
        """Adds the times of one step."""
        for name, seconds in drafting_s.items():
            self.drafting_s[name] = self.drafting_s.get(name, 0.0) + seconds
        self.step_s += target_s + sum(drafting_s.values())

    @property
    def lost_share(self) -> float:
        """`lost_s` as a share of `step_s`."""
        return self.lost_s / self.step_s if self.step_s else 0.0

    @property
    def wasted_share(self) -> float:
        """`wasted_s` as a share of `step_s`."""
        return self.wasted_s / self.step_s if self.step_s else 0.0
