"""`BlockManager`: reference counts, free list and least-recently-used eviction of the blocks of one KV store.

A block table is a plain list of block ids, owned by the caller; position t lies in slot
`table[t // block_size] * block_size + t % block_size`. This module manages tables and ids, never bytes.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence

from paceline.core.errors import PacelineError


class OutOfBlocksError(PacelineError):
    """More blocks were asked for than are free; ask `can_grow` first."""


class BlockManager:
    """Hands out the blocks 0..num_blocks-1.

    A block is referenced (in at least one table), free, or evictable: kept because its content may be asked for again,
    but given away, least recently used first, when no free block is left.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._reference_counts = [0] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._kept: set[int] = set()
        self._evictable: OrderedDict[int, None] = OrderedDict()
        self._on_evict: Callable[[int], None] = self._kept.discard

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be handed out now, evictable ones included."""
        return len(self._free) + len(self._evictable)

    def num_blocks_for(self, num_tokens: int) -> int:
        """Returns how many blocks `num_tokens` slots take; the last one may be filled in part."""
        return -(-num_tokens // self.block_size)

    def can_grow(self, block_table: Sequence[int], num_tokens: int) -> bool:
        """Returns whether `grow` with the same arguments would succeed."""
        return self.num_blocks_for(num_tokens) - len(block_table) <= self.num_free_blocks

    def grow(self, block_table: list[int], num_tokens: int) -> None:
        """Appends blocks until `num_tokens` slots exist; raises OutOfBlocksError and changes nothing if too few are
        free."""
        num_missing = self.num_blocks_for(num_tokens) - len(block_table)
        if num_missing > self.num_free_blocks:
            raise OutOfBlocksError(f"{num_missing} KV blocks wanted, {self.num_free_blocks} free")
        for _ in range(num_missing):
            block_table.append(self._take())

    def trim(self, block_table: list[int], num_tokens: int) -> None:
        """Drops the blocks beyond the first `num_tokens` slots from the table; 0 empties it.

        The last block is dropped first, so that the end of a kept prefix is evicted before its beginning.
        """
        num_wanted = self.num_blocks_for(num_tokens)
        while len(block_table) > num_wanted:
            self._release(block_table.pop())

    def fork(self, block_ids: Iterable[int]) -> list[int]:
        """Returns a new table of the same blocks, each with one more reference. Nobody may write to a shared block."""
        table = list(block_ids)
        for block_id in table:
            if self._reference_counts[block_id] == 0:
                del self._evictable[block_id]
            self._reference_counts[block_id] += 1
        return table

    def call_on_evict(self, callback: Callable[[int], None]) -> None:
        """Sets the function that is called with a kept block's id before the block is given away for new content."""
        self._on_evict = callback

    def keep(self, block_id: int) -> None:
        """Makes a referenced block evictable instead of free once no table references it."""
        self._kept.add(block_id)

    def forget(self, block_id: int) -> None:
        """Undoes `keep`."""
        self._kept.discard(block_id)
        if block_id in self._evictable:
            del self._evictable[block_id]
            self._free.append(block_id)

    def check_integrity(self, block_tables: Iterable[Sequence[int]]) -> None:
        """Raises RuntimeError unless the counts match `block_tables`, which must be all tables in use, and each block
        has one state."""
        counts = Counter(block_id for table in block_tables for block_id in table)
        referenced = {block_id for block_id, count in enumerate(self._reference_counts) if count}
        states = Counter([*referenced, *self._free, *self._evictable])
        problems = {
            "counts differ from tables": dict(counts) != {i: self._reference_counts[i] for i in referenced},
            "blocks without exactly one state": states != Counter(range(self.num_blocks)),
            "evictable but not kept": not self._kept.issuperset(self._evictable),
            "kept but free": not self._kept.isdisjoint(self._free),
        }
        found = [problem for problem, is_present in problems.items() if is_present]
        if found:
            raise RuntimeError(f"KV block accounting is broken: {'; '.join(found)}")

    def _take(self) -> int:
        if self._free:
            block_id = self._free.pop()
        else:
            block_id, _ = self._evictable.popitem(last=False)
            self._kept.discard(block_id)
            self._on_evict(block_id)
        self._reference_counts[block_id] = 1
        return block_id

    def _release(self, block_id: int) -> None:
        self._reference_counts[block_id] -= 1
        if self._reference_counts[block_id]:
            return
        if block_id in self._kept:
            self._evictable[block_id] = None
        else:
            self._free.append(block_id)
