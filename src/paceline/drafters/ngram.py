"""`NgramDrafter`: guesses that the text goes on as it did after the last place where it ended the same way.

Prompt lookup (Saxena, 2023) with an index that grows with the text, so a step costs O(new tokens), not O(context).
"""

from __future__ import annotations

from paceline.core import Draft, Plan, Sequence
from paceline.drafters.protocol import Drafter, DrafterKind, DrafterParts, Proposals

_TOKEN_BITS = 24  # a token id's share of a packed n-gram


class NgramIndex:
    """Where each n-gram of a text last ended, for n from `min_match` to `max_match`, the text's end itself excluded."""

    def __init__(self, min_match: int, max_match: int) -> None:
        self._last_ends: dict[int, dict[int, int]] = {n: {} for n in range(max_match, min_match - 1, -1)}
        self._packed = 0
        self._size = 0

    def extend(self, token_ids: list[int]) -> None:
        """Takes in what `token_ids` has beyond the text so far; `token_ids` must begin with that text."""
        mask = (1 << _TOKEN_BITS * max(self._last_ends)) - 1
        for token_id in token_ids[self._size :]:
            for n, last_ends in self._last_ends.items():
                if self._size >= n:
                    last_ends[self._suffix(n)] = self._size
            self._packed = (self._packed << _TOKEN_BITS | token_id) & mask
            self._size += 1

    def find(self) -> tuple[int, int] | None:
        """(n, end) of the most recent earlier occurrence of the longest suffix that has one; `end` is the index of the
        token that followed it."""
        for n, last_ends in self._last_ends.items():
            if self._size > n and (end := last_ends.get(self._suffix(n))) is not None:
                return n, end
        return None

    def _suffix(self, n: int) -> int:
        return self._packed & ((1 << _TOKEN_BITS * n) - 1)


class NgramDrafter(Drafter):
    """Looks the last `max_match` to `min_match` tokens up in the sequence's own text and proposes what followed.

    A copy that reaches the end of the text goes on in its own draft, so a repeating text is continued. The confidence
    is a prior, n / (n + 1) for a match of n tokens.
    """

    name = "ngram"

    def __init__(self, *, max_match: int = 4, min_match: int = 2) -> None:
        self._min_match = min_match
        self._max_match = max_match
        self._indexes: dict[str, NgramIndex] = {}

    def begin(self, sequence: Sequence) -> None:
        """Starts an empty index; the text is taken in at the first proposal."""
        self._indexes[sequence.sequence_id] = NgramIndex(self._min_match, self._max_match)

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        """Chains; empty where no suffix occurred before."""
        return Proposals(
            [
                self._propose_one(sequence.token_ids, self._indexes[sequence.sequence_id], plan)
                for sequence, plan in zip(sequences, plans, strict=True)
            ]
        )

    def _propose_one(self, token_ids: list[int], index: NgramIndex, plan: Plan) -> Draft:
        index.extend(token_ids)
        found = index.find()
        if found is None:
            return Draft()
        match_length, end = found
        confidence = match_length / (match_length + 1)
        drafted: list[int] = []
        probability = plan.probability(confidence)
        survival = probability
        while len(drafted) < plan.window and survival >= plan.stop_below:
            source = end + len(drafted)
            drafted.append(token_ids[source] if source < len(token_ids) else drafted[source - len(token_ids)])
            survival *= probability
        return Draft.chain(drafted, self.name, [confidence] * len(drafted)) if drafted else Draft()

    def end(self, sequence: Sequence) -> None:
        """Drops the index."""
        del self._indexes[sequence.sequence_id]


class NgramKind(DrafterKind):
    """Goes on as the text did after the last place where it ended the same way."""

    name = NgramDrafter.name

    def build(self, parts: DrafterParts) -> NgramDrafter:
        """Returns a drafter without texts."""
        return NgramDrafter()
