"""What bounds the price of being wrong: `Guard` stops a drafter that loses time on a sequence, `ProbeBudget` says when
one that is off may be tried again.

Steps are counted, not timed, so that a decision depends on nothing but what was measured before it.
"""

from __future__ import annotations

from dataclasses import dataclass

PROBE_SHARE = 0.01
_LEAST_PAUSE = 4
_ALLOWANCE = 1.8  # plain steps that a drafter may be behind, or ahead
_FEWEST_LOSSES = 2  # drafts in a row; one alone may have been long
_CREDIT = 2.0  # plain steps that probes may take before anything is known


@dataclass(slots=True)
class Guard:
    """The balance of one drafter on one sequence, in seconds saved minus seconds spent. `num_losses` counts its latest
    drafts in a row that cost more than they saved.

    A drafter pauses once it is behind by more than the allowance and its last drafts lost. Each pause is longer, until
    the drafter is ahead again. It cannot be ahead by more than the allowance either, so that old success does not pay
    for a long failure.
    """

    balance_s: float = 0.0
    num_losses: int = 0
    resume_at: int = 0
    pause: int = _LEAST_PAUSE

    def is_pausing(self, step: int) -> bool:
        """Whether the drafter is off in this step."""
        return step < self.resume_at

    @property
    def is_in_doubt(self) -> bool:
        """Whether the drafter had to pause and has not made good for it since."""
        return self.pause > _LEAST_PAUSE

    def record(self, saved_s: float, plain_step_s: float, step: int) -> None:
        """Takes in the net of a step in which the drafter drafted."""
        most_s = _ALLOWANCE * plain_step_s
        self.balance_s = min(most_s, self.balance_s + saved_s)
        self.num_losses = self.num_losses + 1 if saved_s < 0.0 else 0
        if self.balance_s > 0.0:
            self.pause = _LEAST_PAUSE
        elif self.balance_s < -most_s and self.num_losses >= _FEWEST_LOSSES:
            self.resume_at = step + 1 + self.pause
            self.pause = 2 * self.pause
            self.balance_s = -most_s / 2


@dataclass(slots=True)
class ProbeBudget:
    """Time that probes may cost: 1 % of the time that has passed, of all or of one sequence, and a few plain steps."""

    total_s: float = 0.0
    spent_s: float = 0.0

    def can_afford(self, price_s: float, plain_step_s: float) -> bool:
        """Whether a probe of this price keeps to the share."""
        return self.spent_s + price_s <= PROBE_SHARE * self.total_s + _CREDIT * plain_step_s


@dataclass(slots=True)
class RetryBackoff:
    """When to probe next: each probe that brings nothing doubles the number of steps to the next."""

    idle_steps: int = 0
    needed_steps: int = 2 * _LEAST_PAUSE

    def wait(self) -> bool:
        """Lets one step go by; returns whether it is time for a probe."""
        self.idle_steps += 1
        return self.idle_steps >= self.needed_steps

    def record(self, has_paid: bool) -> None:
        """Takes in the result of a probe."""
        self.idle_steps = 0
        self.needed_steps = 2 * _LEAST_PAUSE if has_paid else 2 * self.needed_steps
