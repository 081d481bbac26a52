"""`Lookahead`: guesses from the earlier text which tokens the draft model will draft next.

The draft model reads the guesses in the same pass as its own last token. It keeps those that it would have drafted
itself, so its draft is the same but takes fewer passes. The guesses come from a suffix tree, as in the suffix drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from paceline.core import Plan
from paceline.drafters.suffix.drafter import MAX_MATCH
from paceline.drafters.suffix.native_tree import SuffixTree, propose_from_suffixes


class Lookahead:
    """The suffix tree of one text. The text only grows."""

    def __init__(self) -> None:
        self._tree = SuffixTree(MAX_MATCH)
        self._num_read = 0

    def ahead_of(self, text: Sequence[int], drafted: Sequence[int], plan: Plan, limit: int) -> list[int]:
        """Returns at most `limit` guesses to read after the last of `drafted`. `plan.read_above` limits them."""
        window = min(limit, len(plan.read_above))
        if window <= 0:
            return []
        self._tree.append(text[self._num_read :])
        self._num_read = len(text)
        token_ids, _, confidences = propose_from_suffixes(
            self._tree, None, window=window, stop_below=min(plan.read_above), has_branches=False, ahead=drafted
        )
        return token_ids[: num_worth_reading(confidences, plan)]


def num_worth_reading(confidences: Sequence[float], plan: Plan) -> int:
    """Returns how many guesses to read: all before the first whose survival is not above its `read_above`."""
    likelihoods = accumulate(confidences, mul)
    pairs = enumerate(zip(likelihoods, plan.read_above, strict=False))
    return next(
        (n for n, (likelihood, least) in pairs if likelihood <= least), min(len(confidences), len(plan.read_above))
    )
