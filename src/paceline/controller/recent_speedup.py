"""`RecentSpeedup`: how much faster than plain decoding recent steps were; it tells the planner what time is worth."""

from __future__ import annotations

from dataclasses import dataclass

RECENT_MEMORY = 0.96  # what a step weighs in a mean of recent steps, against the next one
_FIRST_SPEED_UP = 1.3  # to be expected before anything was measured
_NUM_FIRST_STEPS = 15


@dataclass(slots=True)
class RecentSpeedup:
    """A decayed mean over steps: the seconds that plain decoding would have taken for their tokens, over the seconds
    that they took.

    A token that is accepted now saves the time of a later one, so the speed of the text around it is what counts.
    """

    plain_s: float = 0.0
    spent_s: float = 0.0

    def start(self, plain_step_s: float) -> None:
        """Starts from an expectation that weighs as much as some plain steps, unless there is a measurement."""
        if self.spent_s == 0.0:
            self.spent_s = _NUM_FIRST_STEPS * plain_step_s
            self.plain_s = _FIRST_SPEED_UP * self.spent_s

    def record(self, plain_s: float, spent_s: float) -> None:
        """Adds one step."""
        self.plain_s = self.plain_s * RECENT_MEMORY + plain_s
        self.spent_s = self.spent_s * RECENT_MEMORY + spent_s

    @property
    def speed_up(self) -> float:
        """The mean, and at least 1."""
        return max(1.0, self.plain_s / self.spent_s) if self.spent_s else 1.0
