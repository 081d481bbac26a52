"""`SuffixDrafter`: guesses that the text continues as earlier texts did after the same tokens.

It looks at the sequence's own text and at a store of recent answers to requests of the same tenant. The trees and the
proposals are native code (native/suffix/). This module decides which text goes into which tree.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core import Draft, Plan, Sequence, Verdict
from paceline.drafters.protocol import Drafter, Proposals
from paceline.drafters.suffix.native_tree import SuffixTree, propose_from_suffixes
from paceline.drafters.suffix.store import SuffixStore

MAX_MATCH = 24
"""The longest context, in tokens. A text that matches for so long nearly always continues alike (decision 001)."""

PIECE_SIZE = 64
"""A running sequence's output enters the store in pieces of at least so many tokens, for other sequences."""


@dataclass(slots=True)
class _OwnText:
    """A sequence's own tree. The first `num_read` tokens are in it. The output up to `num_stored` is in the store."""

    tree: SuffixTree
    num_stored: int
    num_read: int = 0


class SuffixDrafter(Drafter):
    """Finds the longest end of the text that occurred before, and proposes the tokens that followed it there.

    `store_size` is the number of tokens that the store may hold over all tenants (0: no store). Contexts have at most
    `max_match` tokens. A draft ends when its survival falls below `min_survival` or the plan's `stop_below`. With
    `has_branches`, the draft is a tree of the nodes that are most likely to be accepted.
    """

    name = "suffix"

    def __init__(
        self, *, store_size: int = 0, max_match: int = MAX_MATCH, min_survival: float = 0.1, has_branches: bool = False
    ) -> None:
        self.store = SuffixStore(max_tokens=store_size, max_match=max_match)
        self._max_match = max_match
        self._min_survival = min_survival
        self._has_branches = has_branches
        self._texts: dict[str, _OwnText] = {}

    def begin(self, sequence: Sequence) -> None:
        """Starts an empty tree. The first proposal reads the text into it. Output that already exists is not stored."""
        self._texts[sequence.sequence_id] = _OwnText(SuffixTree(self._max_match), len(sequence.token_ids))

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        """Returns chains or trees. A draft is empty if no context occurred before, or if no node is likely enough."""
        return Proposals([self._propose_one(sequence, plan) for sequence, plan in zip(sequences, plans, strict=True)])

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:
        """Stores new output, a piece at a time. The sequences' own trees read it at the next proposal."""
        for sequence in sequences:
            if len(sequence.token_ids) - self._texts[sequence.sequence_id].num_stored >= PIECE_SIZE:
                self._store(sequence)

    def end(self, sequence: Sequence) -> None:
        """Stores the rest of the sequence's output and drops its tree."""
        self._store(sequence)
        del self._texts[sequence.sequence_id]

    def _propose_one(self, sequence: Sequence, plan: Plan) -> Draft:
        own = self._texts[sequence.sequence_id]
        own.tree.append(sequence.token_ids[own.num_read :])
        own.num_read = len(sequence.token_ids)
        token_ids, parents, confidences = propose_from_suffixes(
            own.tree,
            self.store.tree(sequence.request.tenant),
            window=plan.window,
            stop_below=max(plan.stop_below, self._min_survival),
            has_branches=self._has_branches,
        )
        return Draft(tuple(token_ids), tuple(parents), tuple(confidences), self.name) if token_ids else Draft()

    def _store(self, sequence: Sequence) -> None:
        """Stores the output since the last piece. Its context is only output too, so no prompt enters the store."""
        own = self._texts[sequence.sequence_id]
        first_context = max(sequence.num_prompt_tokens, own.num_stored - self._max_match)
        context = sequence.token_ids[first_context : own.num_stored]
        self.store.add(sequence.request.tenant, context, sequence.token_ids[own.num_stored :])
        own.num_stored = len(sequence.token_ids)
