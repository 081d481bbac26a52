"""`Lookahead`: what a text's own past says may follow it, or a draft that continues it, for a draft model to check.

A draft model reads such tokens in the pass in which it reads its own last one, and goes on behind those that it would
have drawn itself: its draft is the same, in fewer passes. It is the suffix drafter's guess, about a draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from paceline.core import Plan
from paceline.drafters.suffix.drafter import MAX_MATCH
from paceline.drafters.suffix.native_tree import SuffixTree, propose_from_suffixes


class Lookahead:
    """Follows one text, which only grows."""

    def __init__(self) -> None:
        self._tree = SuffixTree(MAX_MATCH)
        self._num_read = 0

    def ahead_of(self, text: Sequence[int], drafted: Sequence[int], plan: Plan, limit: int) -> list[int]:
        """At most `limit` tokens to read beside the last of `drafted`, as many as are worth it by the plan."""
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
    """How many tokens of these confidences to read ahead."""
    likelihoods = accumulate(confidences, mul)
    pairs = enumerate(zip(likelihoods, plan.read_above, strict=False))
    return next(
        (n for n, (likelihood, least) in pairs if likelihood <= least), min(len(confidences), len(plan.read_above))
    )
