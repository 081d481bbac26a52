"""`Pace`: how much faster than plain decoding a text is written of late. It says what time is worth to the planner."""

from __future__ import annotations

from dataclasses import dataclass

_MEMORY = 0.97
_FIRST_SPEED_UP = 1.3  # to be expected before anything was measured
_NUM_FIRST_STEPS = 15


@dataclass(slots=True)
class Pace:
    """A decayed mean over steps: seconds that plain decoding would have taken for their tokens, over those they took.

    A token that is accepted now saves the time of the next one, so what counts is the pace of the text around it. Steps
    that copied, with a long free draft, tell nothing of the rest and are not to be recorded.
    """

    plain_s: float = 0.0
    spent_s: float = 0.0

    def start(self, plain_step_s: float) -> None:
        """Sets out from an expectation that counts as much as some plain steps, unless there is a measurement."""
        if self.spent_s == 0.0:
            self.spent_s = _NUM_FIRST_STEPS * plain_step_s
            self.plain_s = _FIRST_SPEED_UP * self.spent_s

    def record(self, plain_s: float, spent_s: float) -> None:
        """Takes in one step."""
        self.plain_s = self.plain_s * _MEMORY + plain_s
        self.spent_s = self.spent_s * _MEMORY + spent_s

    @property
    def speed_up(self) -> float:
        """At least 1."""
        return max(1.0, self.plain_s / self.spent_s) if self.spent_s else 1.0
