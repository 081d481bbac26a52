"""What a step costs: measured tables (`StepCosts`) and what running has since shown about them (`CostModel`).

The tables come from real forward passes (engine/profile.py) or from a file. Only ratios decide, so a slowdown of
everything, by a noisy neighbour say, is kept apart from what one row count or one drafter costs against the others.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from functools import cache, partial
from itertools import accumulate

import msgspec

_COMMON_RATE = 0.3  # how fast a slowdown of everything is followed
_OWN_RATE = 0.02  # and what one entry costs against the others
_MAX_SURPRISE = 0.4  # in log time; more than this in one step is an outlier


class RowTable(msgspec.Struct, frozen=True):
    """Seconds of one forward pass by number of rows, without context; `context_s` more for each position of context of
    a sequence, and `row_context_s` more for each row and position of its context."""

    rows: tuple[int, ...]
    seconds: tuple[float, ...]
    context_s: float = 0.0
    row_context_s: float = 0.0

    def at(self, num_rows: float) -> float:
        """Interpolated, beyond the ends along the last piece; never falls with the rows."""
        return _interpolate(self.rows, tuple(accumulate(self.seconds, max)), num_rows)


class DrafterCosts(msgspec.Struct, frozen=True):
    """What a drafter that runs a model costs: a pass by number of sequences, which gives a depth of their drafts, and
    the reading of a token."""

    depth: RowTable
    missed_token_s: float


class StepCosts(msgspec.Struct, frozen=True):
    """Everything that a start-up profile measures."""

    target: RowTable
    drafters: dict[str, DrafterCosts] = {}


class CostModel:
    """Predicted seconds, refined by what steps really took.

    Each measurement moves the common factor of all predictions fast and the entry's own factor slowly, both by a
    bounded amount, so one slow step changes little and a lasting slowdown of everything no decision. Predictions leave
    the common factor out: they compare.
    """

    def __init__(self, costs: StepCosts) -> None:
        self.costs = costs
        self.common_factor = 1.0  # measured over predicted time in recent steps
        self._target_s = cache(costs.target.at)
        self._depth_s = {name: cache(drafter.depth.at) for name, drafter in costs.drafters.items()}
        self._bucket = cache(partial(_bucket_of, costs.target.rows))
        self._factors: defaultdict[str | int, float] = defaultdict(lambda: 1.0)  # by drafter, or bucket of rows

    def steps_s(self, num_rows: int, num_extra: int, context: float) -> list[float]:
        """Returns the seconds of the target's pass with 0 to `num_extra` rows beyond `num_rows`, after `context`
        positions each. They never fall with the rows."""
        target = self.costs.target
        per_row, base_s = target.row_context_s * context, target.context_s * context
        times = [
            self._target_s(rows) * self._factors[self._bucket(rows)] + base_s + per_row * rows
            for rows in range(num_rows, num_rows + num_extra + 1)
        ]
        return list(accumulate(times, max))

    def step_s(self, num_rows: int, context: float) -> float:
        """Returns the seconds of the target's pass over `num_rows`."""
        return self.steps_s(num_rows, 0, context)[0]

    def has_price(self, drafter: str) -> bool:
        """Whether the drafter runs a model; the others cost nothing."""
        return drafter in self.costs.drafters

    def depth_s(self, drafter: str, num_sequences: int, context: float) -> float:
        """Returns the seconds of one depth of a drafter's drafts for so many sequences."""
        costs = self.costs.drafters.get(drafter)
        if costs is None:
            return 0.0
        context_s = context * (costs.depth.context_s + costs.depth.row_context_s * num_sequences)
        return (self._depth_s[drafter](num_sequences) + context_s) * self._factors[drafter]

    def catch_up_s(self, drafter: str, num_missed: int) -> float:
        """Returns the seconds to read so many tokens beside a pass that is made anyhow."""
        costs = self.costs.drafters.get(drafter)
        return 0.0 if costs is None else costs.missed_token_s * num_missed * self._factors[drafter]

    def refine_step(self, num_rows: int, context: float, measured_s: float) -> None:
        """Learns from a pass of the target."""
        self._refine(self._bucket(num_rows), measured_s, self.step_s(num_rows, context))

    def refine_drafter(self, drafter: str, predicted_s: float, measured_s: float) -> None:
        """Learns from a drafter's passes in one step, which `depth_s` and `catch_up_s` predicted."""
        self._refine(drafter, measured_s, predicted_s)

    def _refine(self, entry: str | int, measured_s: float, predicted_s: float) -> None:
        if measured_s <= 0.0 or predicted_s <= 0.0:
            return
        surprise = math.log(measured_s / predicted_s / self.common_factor)
        bounded = min(_MAX_SURPRISE, max(-_MAX_SURPRISE, surprise))
        self.common_factor *= math.exp(_COMMON_RATE * bounded)
        self._factors[entry] *= math.exp(_OWN_RATE * bounded)


def _bucket_of(rows: Sequence[int], num_rows: int) -> int:
    """Returns the index of the first entry of a table that is not below `num_rows`, or of the last one."""
    return min(bisect_left(rows, num_rows), len(rows) - 1)


def _interpolate(places: Sequence[int], values: Sequence[float], place: float) -> float:
    if len(places) == 1:
        return values[0]
    right = min(max(1, bisect_left(places, place)), len(places) - 1)
    left = right - 1
    slope = (values[right] - values[left]) / (places[right] - places[left])
    return max(values[0] if place >= places[0] else 0.0, values[left] + slope * (place - places[left]))
