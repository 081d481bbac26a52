"""`SuffixStore`: recent answers, separate for each tenant, for the suffix drafter.

Each tenant has its own suffix tree, and a proposal reads only one tree, so no text passes from one tenant to another.
All trees share one limit. The oldest text is evicted first, whichever tenant it belongs to.
"""

from __future__ import annotations

from collections import deque

from paceline.drafters.suffix.native_tree import SuffixTree

TEXT_OVERHEAD = 32
"""Tokens that are added to a text's size for its entries in the tree and the queue."""


class SuffixStore:
    """Holds texts of at most `max_tokens` tokens in all; 0 keeps nothing. Contexts have at most `max_match` tokens."""

    def __init__(self, *, max_tokens: int, max_match: int) -> None:
        self._max_tokens = max_tokens
        self._max_match = max_match
        self._trees: dict[str, SuffixTree] = {}
        self._queue: deque[tuple[str, int]] = deque()
        self._num_tokens = 0

    @property
    def num_tokens(self) -> int:
        """The size of all texts in tokens, overhead included; at most `max_tokens`."""
        return self._num_tokens

    @property
    def size_bytes(self) -> int:
        """The memory of all trees."""
        return sum(tree.size_bytes for tree in self._trees.values())

    def tree(self, tenant: str) -> SuffixTree | None:
        """Returns the tenant's tree, None if it has no texts. The next `add` may empty or replace it."""
        return self._trees.get(tenant)

    def add(self, tenant: str, context: list[int], token_ids: list[int]) -> None:
        """Adds a text after tokens that are only its context. Evicts the oldest texts while the limit is exceeded."""
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
