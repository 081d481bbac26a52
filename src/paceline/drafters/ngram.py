"""`NgramDrafter`: guesses that the text continues as it did after the latest occurrence of its last tokens.

This is prompt lookup (Saxena, 2023). Its index grows with the text, so a step costs O(new tokens), not O(context).
"""

from __future__ import annotations

from paceline.core import Draft, Plan, Sequence
from paceline.drafters.protocol import Drafter, DrafterKind, DrafterParts, Proposals

_TOKEN_BITS = 24  # a token id's share of a packed n-gram


class NgramIndex:
    """The last place before the text's end where each n-gram ended, for n from `min_match` to `max_match`."""

    def __init__(self, min_match: int, max_match: int) -> None:
        self._last_ends: dict[int, dict[int, int]] = {n: {} for n in range(max_match, min_match - 1, -1)}
        self._packed = 0
        self._size = 0

    def extend(self, token_ids: list[int]) -> None:
        """Adds the new tokens of `token_ids`, which must begin with the text so far."""
        mask = (1 << _TOKEN_BITS * max(self._last_ends)) - 1
        for token_id in token_ids[self._size :]:
            for n, last_ends in self._last_ends.items():
                if self._size >= n:
                    last_ends[self._suffix(n)] = self._size
            self._packed = (self._packed << _TOKEN_BITS | token_id) & mask
            self._size += 1

    def find(self) -> tuple[int, int] | None:
        """Returns (n, end) for the longest suffix of the text that occurred before, None if there is none. `end` is the
        index of the token that followed its latest occurrence."""
        for n, last_ends in self._last_ends.items():
            if self._size > n and (end := last_ends.get(self._suffix(n))) is not None:
                return n, end
        return None

    def _suffix(self, n: int) -> int:
        return self._packed & ((1 << _TOKEN_BITS * n) - 1)


class NgramDrafter(Drafter):
    """Looks up the last `max_match` to `min_match` tokens in the sequence's own text and proposes what followed them.

    A copy that reaches the end of the text continues with the start of its own draft, so a repetition goes on. The
    confidence is not measured: it is n / (n + 1) for a match of n tokens.
    """

    name = "ngram"

    def __init__(self, *, max_match: int = 4, min_match: int = 2) -> None:
        self._min_match = min_match
        self._max_match = max_match
        self._indexes: dict[str, NgramIndex] = {}

    def begin(self, sequence: Sequence) -> None:
        """Starts an empty index. The first proposal adds the text."""
        self._indexes[sequence.sequence_id] = NgramIndex(self._min_match, self._max_match)

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        """Returns chains. A chain is empty if no suffix of the text occurred before."""
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
    """The kind of drafter that copies what followed the latest occurrence of the text's last tokens."""

    name = NgramDrafter.name

    def build(self, parts: DrafterParts) -> NgramDrafter:
        """Returns a drafter that follows no sequence yet."""
        return NgramDrafter()
