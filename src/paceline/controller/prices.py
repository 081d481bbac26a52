"""`StepPrices`: what the rows and depths of one step cost, and what a token is worth in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from paceline.controller.cost_model import CostModel
from paceline.controller.planner import Candidate, worths_by_size

_ROWS_AHEAD = 4  # a row is priced together with the next few, so that rows share the price of a jump (decision 022)


@dataclass(frozen=True, slots=True)
class StepPrices:
    """The prices that hold in one step.

    `steps_s[n]` is the time of the target's pass with n draft rows, and `plain_s` that of a pass with one row for each
    sequence. `context` is the mean number of tokens before the drafts. `speedup` is how much faster than plain decoding
    recent steps were.
    """

    costs: CostModel
    num_sequences: int
    context: float
    plain_s: float
    steps_s: list[float]
    speedup: float

    @property
    def rate(self) -> float:
        """How many tokens a second is worth: as many as the text gets in a second at the recent speed."""
        return self.speedup * self.num_sequences / self.plain_s

    @property
    def row_s(self) -> float:
        """The mean seconds of the first few draft rows."""
        last = min(_ROWS_AHEAD, len(self.steps_s) - 1)
        return (self.steps_s[last] - self.steps_s[0]) / max(1, last)

    def row_prices(self, num_rows: int, num_drafting: Sequence[float]) -> list[float]:
        """Returns the seconds that a row costs at each depth beside `num_rows` other rows, where `num_drafting[d]`
        sequences are expected to draft to depth d.

        The price is the least mean over the next few depths, so that the rows after a jump in cost share it.
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
        """Returns for each depth of a free draft the probability that its node must have to be worth its row, where the
        text runs at `speedup`. Of several sequences the rows come in any order, so the cheapest row is the price."""
        prices_s = self.row_prices(0, [1.0] * num_depths)
        if self.num_sequences > 1:
            prices_s = [min(prices_s, default=0.0)] * num_depths
        return [speedup * self.num_sequences / self.plain_s * price_s for price_s in prices_s]

    def worth(self, candidate: Candidate, num_sharing: int) -> float:
        """Returns the expected tokens of a candidate minus their cost, for the best number of nodes; at least 0.
        `num_sharing` sequences share its drafter's passes."""
        return worths_by_size(candidate, self.row_s + candidate.depth_s / max(1, num_sharing), self.rate)[-1]
