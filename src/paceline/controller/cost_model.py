"""What a step costs: measured tables (`StepCosts`) and what running has since shown about them (`CostModel`).

The tables come from real forward passes (engine/profile.py) or from a file. Only ratios decide, so a slowdown of
everything, by a noisy neighbour say, is kept apart from what one row count or one drafter costs against the others.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

import msgspec

MAX_TABLE_ROWS = 1024
_COMMON_RATE = 0.3  # how fast a slowdown of everything is followed
_OWN_RATE = 0.02  # and what one entry costs against the others
_MAX_SURPRISE = 0.4  # in log time; more than this in one step is an outlier
_MAX_CORRECTION = 0.7


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
        self._row_s = [costs.target.at(num_rows) for num_rows in range(MAX_TABLE_ROWS + 1)]
        self._row_factors = [1.0] * (MAX_TABLE_ROWS + 1)
        self._depth_s = {
            name: [drafter.depth.at(count) for count in range(MAX_TABLE_ROWS + 1)]
            for name, drafter in costs.drafters.items()
        }
        self._corrections: dict[tuple[str, int], float] = {}
        self._common = 0.0

    @property
    def common_factor(self) -> float:
        """Measured time over predicted time in recent steps."""
        return math.exp(self._common)

    def steps_s(self, num_rows: int, num_extra: int, context: float) -> list[float]:
        """Seconds of the target's pass with 0 to `num_extra` rows beyond `num_rows`, after `context` positions each.

        The part of attention that does not depend on the rows is left to `context_s`.
        """
        target = self.costs.target
        last = min(MAX_TABLE_ROWS, num_rows + num_extra)
        first = min(num_rows, last)
        per_row = target.row_context_s * context
        base = target.context_s * context
        times = [self._row_s[rows] * self._row_factors[rows] + base + per_row * rows for rows in range(first, last + 1)]
        times += [times[-1]] * (num_extra + 1 - len(times))
        return list(accumulate(times, max))

    def step_s(self, num_rows: int, context: float) -> float:
        """Seconds of the target's pass over `num_rows`."""
        return self.steps_s(num_rows, 0, context)[0]

    def has_price(self, drafter: str) -> bool:
        """Whether the drafter runs a model; the others cost nothing."""
        return drafter in self.costs.drafters

    def depth_s(self, drafter: str, num_sequences: int, context: float) -> float:
        """Seconds of one depth of a drafter's drafts for so many sequences."""
        costs = self.costs.drafters.get(drafter)
        if costs is None:
            return 0.0
        table = costs.depth
        seconds = self._depth_s[drafter][min(num_sequences, MAX_TABLE_ROWS)] + context * (
            table.context_s + table.row_context_s * num_sequences
        )
        return seconds * self._factor(drafter, 0)

    def catch_up_s(self, drafter: str, num_missed: int) -> float:
        """Seconds to read so many tokens beside a pass that is made anyhow."""
        costs = self.costs.drafters.get(drafter)
        return 0.0 if costs is None else costs.missed_token_s * num_missed * self._factor(drafter, 0)

    def refine_step(self, num_rows: int, context: float, measured_s: float) -> None:
        """Learns from a pass of the target."""
        bucket = min(bisect_left(self.costs.target.rows, num_rows), len(self.costs.target.rows) - 1)
        self._refine(("", bucket), measured_s, self.step_s(num_rows, context))
        below = self.costs.target.rows[bucket - 1] if bucket else 0
        for rows in range(below + 1, min(MAX_TABLE_ROWS, self.costs.target.rows[bucket]) + 1):
            self._row_factors[rows] = self._factor("", bucket)

    def refine_drafter(self, drafter: str, predicted_s: float, measured_s: float) -> None:
        """Learns from a drafter's passes in one step, which `depth_s` and `catch_up_s` predicted."""
        self._refine((drafter, 0), measured_s, predicted_s)

    def _factor(self, name: str, bucket: int) -> float:
        return math.exp(self._corrections.get((name, bucket), 0.0))

    def _refine(self, entry: tuple[str, int], measured_s: float, predicted_s: float) -> None:
        if measured_s <= 0.0 or predicted_s <= 0.0:
            return
        surprise = math.log(measured_s / predicted_s) - self._common
        bounded = min(_MAX_SURPRISE, max(-_MAX_SURPRISE, surprise))
        self._common += _COMMON_RATE * bounded
        correction = self._corrections.get(entry, 0.0) + _OWN_RATE * bounded
        self._corrections[entry] = min(_MAX_CORRECTION, max(-_MAX_CORRECTION, correction))


def _interpolate(places: Sequence[int], values: Sequence[float], place: float) -> float:
    if len(places) == 1:
        return values[0]
    right = min(max(1, bisect_left(places, place)), len(places) - 1)
    left = right - 1
    slope = (values[right] - values[left]) / (places[right] - places[left])
    return max(values[0] if place >= places[0] else 0.0, values[left] + slope * (place - places[left]))
