"""`StepPrices`: what the rows and depths of one step cost, and what a token is worth in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from paceline.controller.cost_model import CostModel
from paceline.controller.planner import Candidate, worths_by_size

_ROWS_AHEAD = 4  # rows whose mean is the price of a row, so that they share a jump in cost (decision 022)


@dataclass(frozen=True, slots=True)
class StepPrices:
    """The prices of one step.

    `steps_s[n]` is the time of the target's pass with n draft rows. `plain_s` is the time of its pass with one row for
    each sequence. `context` is the mean number of tokens before the drafts. `speedup` is the speed of recent steps
    divided by the speed of plain decoding.
    """

    costs: CostModel
    num_sequences: int
    context: float
    plain_s: float
    steps_s: list[float]
    speedup: float

    @property
    def rate(self) -> float:
        """The number of tokens that one second is worth, which is the recent speed in tokens per second."""
        return self.speedup * self.num_sequences / self.plain_s

    @property
    def row_s(self) -> float:
        """The mean seconds of one draft row, over the first four."""
        last = min(_ROWS_AHEAD, len(self.steps_s) - 1)
        return (self.steps_s[last] - self.steps_s[0]) / max(1, last)

    def row_prices(self, num_rows: int, num_drafting: Sequence[float]) -> list[float]:
        """Returns the seconds that a row costs at each depth. The step has `num_rows` other draft rows, and
        `num_drafting[d]` sequences are expected to draft at depth d.

        The price is the lowest of the mean costs over the next one to four depths, so several rows share a jump in
        cost.
        """
        last = len(self.steps_s) - 1
        rows = [min(last, num_rows + round(added)) for added in accumulate(num_drafting, initial=0.0)]
        depth = len(num_drafting)
        return [
            min(
                (self.steps_s[rows[end]] - self.steps_s[rows[level]]) / max(1, rows[end] - rows[level])
                for end in range(level + 1, min(depth, level + _ROWS_AHEAD) + 1)
            )
            for level in range(depth)
        ]

    def free_floors(self, num_depths: int, speedup: float) -> list[float]:
        """Returns for each depth of a free draft the survival at which a node is worth its row, if the text is
        produced at `speedup`. With several sequences the order of rows is unknown, so the cheapest row is the price."""
        prices_s = self.row_prices(0, [1.0] * num_depths)
        if self.num_sequences > 1:
            prices_s = [min(prices_s, default=0.0)] * num_depths
        return [speedup * self.num_sequences / self.plain_s * price_s for price_s in prices_s]

    def worth(self, candidate: Candidate, num_sharing: int) -> float:
        """Returns the expected tokens of a candidate minus its cost in tokens, with the best number of nodes. It is at
        least 0. `num_sharing` sequences share the drafter's passes."""
        return worths_by_size(candidate, self.row_s + candidate.depth_s / max(1, num_sharing), self.rate)[-1]
