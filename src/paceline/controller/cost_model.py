"""What a step costs: the measured tables (`StepCosts`) and their corrections by later steps (`CostModel`).

The tables come from real forward passes (engine/profile.py) or from a file. Only ratios of times affect decisions. If
everything becomes slower, for example because of another process, this is one factor for all entries. Each row count
and each drafter also has a factor of its own, relative to the others.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from functools import cache, partial
from itertools import accumulate

import msgspec

_COMMON_RATE = 0.3  # learning rate of the common factor
_OWN_RATE = 0.02  # learning rate of an entry's own factor
_MAX_SURPRISE = 0.4  # of the log of measured over predicted time; larger errors are cut to this


class RowTable(msgspec.Struct, frozen=True):
    """The seconds of one forward pass by its number of rows, if the sequences have no context. For each position of the
    mean context of the sequences, a pass takes `context_s` more, and each of its rows takes `row_context_s` more."""

    rows: tuple[int, ...]
    seconds: tuple[float, ...]
    context_s: float = 0.0
    row_context_s: float = 0.0

    def at(self, num_rows: float) -> float:
        """Returns the seconds for a number of rows. It interpolates the table, and never returns less for more rows."""
        return _interpolate(self.rows, tuple(accumulate(self.seconds, max)), num_rows)


class DrafterCosts(msgspec.Struct, frozen=True):
    """What a model drafter costs. `depth` holds the seconds of one pass by the number of sequences; a pass drafts one
    token for each of them. `missed_token_s` is the time to read one unread token."""

    depth: RowTable
    missed_token_s: float


class StepCosts(msgspec.Struct, frozen=True):
    """All tables that the profile at start-up measures."""

    target: RowTable
    drafters: dict[str, DrafterCosts] = {}


class CostModel:
    """Predicts seconds, and corrects the predictions by the time that steps really took.

    Each measurement moves the common factor of all predictions fast and the entry's own factor slowly. Both movements
    are bounded, so one slow step changes little. A lasting slowdown of everything changes no decision: predictions
    leave out the common factor, because they are only compared with each other.
    """

    def __init__(self, costs: StepCosts) -> None:
        self.costs = costs
        self.common_factor = 1.0  # measured over predicted time in recent steps
        self._target_s = cache(costs.target.at)
        self._depth_s = {name: cache(drafter.depth.at) for name, drafter in costs.drafters.items()}
        self._bucket = cache(partial(_bucket_of, costs.target.rows))
        self._factors: defaultdict[str | int, float] = defaultdict(lambda: 1.0)  # by drafter, or bucket of rows

    def steps_s(self, num_rows: int, num_extra: int, context: float) -> list[float]:
        """Returns the seconds of the target's pass with `num_rows` rows and 0, 1, ... `num_extra` more. `context` is
        the mean number of tokens of the sequences. The seconds never fall as rows are added."""
        target = self.costs.target
        per_row, base_s = target.row_context_s * context, target.context_s * context
        times = [
            self._target_s(rows) * self._factors[self._bucket(rows)] + base_s + per_row * rows
            for rows in range(num_rows, num_rows + num_extra + 1)
        ]
        return list(accumulate(times, max))

    def step_s(self, num_rows: int, context: float) -> float:
        """Returns the seconds of the target's pass with `num_rows` rows."""
        return self.steps_s(num_rows, 0, context)[0]

    def has_price(self, drafter: str) -> bool:
        """Returns whether the drafter runs a model. Free drafters have no predicted cost."""
        return drafter in self.costs.drafters

    def depth_s(self, drafter: str, num_sequences: int, context: float) -> float:
        """Returns the seconds of one pass of a drafter, which drafts one token for each sequence."""
        costs = self.costs.drafters.get(drafter)
        if costs is None:
            return 0.0
        context_s = context * (costs.depth.context_s + costs.depth.row_context_s * num_sequences)
        return (self._depth_s[drafter](num_sequences) + context_s) * self._factors[drafter]

    def catch_up_s(self, drafter: str, num_missed: int) -> float:
        """Returns the seconds that a drafter needs to read `num_missed` tokens, without its passes for the draft."""
        costs = self.costs.drafters.get(drafter)
        return 0.0 if costs is None else costs.missed_token_s * num_missed * self._factors[drafter]

    def refine_step(self, num_rows: int, context: float, measured_s: float) -> None:
        """Learns from the measured time of a target pass."""
        self._refine(self._bucket(num_rows), measured_s, self.step_s(num_rows, context))

    def refine_drafter(self, drafter: str, predicted_s: float, measured_s: float) -> None:
        """Learns from a drafter's time in one step. `predicted_s` is a sum of `depth_s` and `catch_up_s`."""
        self._refine(drafter, measured_s, predicted_s)

    def _refine(self, entry: str | int, measured_s: float, predicted_s: float) -> None:
        if measured_s <= 0.0 or predicted_s <= 0.0:
            return
        surprise = math.log(measured_s / predicted_s / self.common_factor)
        bounded = min(_MAX_SURPRISE, max(-_MAX_SURPRISE, surprise))
        self.common_factor *= math.exp(_COMMON_RATE * bounded)
        self._factors[entry] *= math.exp(_OWN_RATE * bounded)


def _bucket_of(rows: Sequence[int], num_rows: int) -> int:
    """Returns the index of the first entry of `rows` that is at least `num_rows`, else the last index."""
    return min(bisect_left(rows, num_rows), len(rows) - 1)


def _interpolate(places: Sequence[int], values: Sequence[float], place: float) -> float:
    if len(places) == 1:
        return values[0]
    right = min(max(1, bisect_left(places, place)), len(places) - 1)
    left = right - 1
    slope = (values[right] - values[left]) / (places[right] - places[left])
    return max(values[0] if place >= places[0] else 0.0, values[left] + slope * (place - places[left]))
