"""How losses are limited. `Guard` pauses a drafter that loses time on a sequence. `ProbeBudget` limits the time of
probes of drafters that are off, and `RetryBackoff` says how many steps pass between two probes.

Pauses and waits are counted in steps, not in seconds, so a decision depends only on earlier measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

PROBE_SHARE = 0.01
_LEAST_PAUSE = 4
_ALLOWANCE = 1.8  # plain steps; the balance stays below this, and a drafter pauses below minus this
_FEWEST_LOSSES = 2  # drafts in a row that lost time before a pause; a single loss may come from one long draft
_CREDIT = 2.0  # plain steps that probes may take beyond their share


@dataclass(slots=True)
class Guard:
    """The balance of one drafter on one sequence: the seconds that it saved minus the seconds that it cost.

    A drafter pauses if its balance is below -1.8 plain steps and its last two drafts both lost time (`num_losses`
    counts such drafts in a row). Each pause is twice as long as the one before, until the balance is positive again.
    The balance is at most +1.8 plain steps, so early success cannot hide a long series of losses.
    """

    balance_s: float = 0.0
    num_losses: int = 0
    resume_at: int = 0
    pause: int = _LEAST_PAUSE

    def is_pausing(self, step: int) -> bool:
        """Returns whether the drafter is paused in this step."""
        return step < self.resume_at

    @property
    def is_in_doubt(self) -> bool:
        """Whether the drafter has paused and its balance has not been positive since then."""
        return self.pause > _LEAST_PAUSE

    def record(self, saved_s: float, plain_step_s: float, step: int) -> None:
        """Records the time that one draft saved, minus its cost. Starts a pause if one is due."""
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
    """The time that probes may cost, of the engine or of one sequence: 1 % of `total_s`, and two plain steps."""

    total_s: float = 0.0
    spent_s: float = 0.0

    def can_afford(self, price_s: float, plain_step_s: float) -> bool:
        """Returns whether a probe that costs `price_s` stays within the budget."""
        return self.spent_s + price_s <= PROBE_SHARE * self.total_s + _CREDIT * plain_step_s


@dataclass(slots=True)
class RetryBackoff:
    """Says when to probe next. Each probe that saves no time doubles the number of steps before the next one."""

    idle_steps: int = 0
    needed_steps: int = 2 * _LEAST_PAUSE

    def wait(self) -> bool:
        """Counts one step, and returns whether a probe is due."""
        self.idle_steps += 1
        return self.idle_steps >= self.needed_steps

    def record(self, has_paid: bool) -> None:
        """Records whether a probe saved time."""
        self.idle_steps = 0
        self.needed_steps = 2 * _LEAST_PAUSE if has_paid else 2 * self.needed_steps
