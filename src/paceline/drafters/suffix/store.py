"""`SuffixStore`: what requests said lately, kept apart by tenant, for the suffix drafter.

Each tenant has a suffix tree of its own, and a proposal reads one tree, so no text can pass from one to another. All
trees together share one bound; the oldest text goes first, whoever it belongs to.
"""

from __future__ import annotations

from collections import deque

from paceline.drafters.suffix.native_tree import SuffixTree

TEXT_OVERHEAD = 32
"""Tokens that a text counts beside its own, for what a tree and a queue hold of it."""


class SuffixStore:
    """Holds texts of up to `max_tokens` tokens in all; 0 keeps nothing. A context has at most `max_match` tokens."""

    def __init__(self, *, max_tokens: int, max_match: int) -> None:
        self._max_tokens = max_tokens
        self._max_match = max_match
        self._trees: dict[str, SuffixTree] = {}
        self._queue: deque[tuple[str, int]] = deque()
        self._num_tokens = 0

    @property
    def num_tokens(self) -> int:
        """What all texts count, at most `max_tokens`."""
        return self._num_tokens

    @property
    def size_bytes(self) -> int:
        """Memory of all trees."""
        return sum(tree.size_bytes for tree in self._trees.values())

    def tree(self, tenant: str) -> SuffixTree | None:
        """The tenant's texts, None where there are none; may be empty or replaced after the next `add`."""
        return self._trees.get(tenant)

    def add(self, tenant: str, context: list[int], token_ids: list[int]) -> None:
        """Takes a text in, behind tokens that are context only, and evicts the oldest ones beyond the bound."""
        size = len(context) + len(token_ids) + TEXT_OVERHEAD
        if size > self._max_tokens or not token_ids:
            return
        tree = self._trees.get(tenant)
        if tree is None:
            tree = self._trees[tenant] = SuffixTree(self._max_match)
        tree.begin_text(context)
        tree.append(token_ids)
        self._queue.append((tenant, size))
        self._num_tokens += size
        while self._num_tokens > self._max_tokens:
            self._evict()

    def _evict(self) -> None:
        tenant, size = self._queue.popleft()
        self._num_tokens -= size
        tree = self._trees[tenant]
        tree.evict_text()
        if tree.num_texts == 0:
            del self._trees[tenant]
