"""`PrefixCache`: finds the blocks that already hold the KV of a prompt's beginning.

The key of a full block is a hash of its tokens and of the key of the block before it; a hit re-checks the tokens. The
first key of a chain includes the tenant, so that no tenant finds blocks of another. Only blocks whose tokens are
committed may enter, so a rejected draft can never be found here.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from paceline.kvcache.block_manager import BlockManager

BlockHash = Callable[[bytes, Sequence[int]], bytes]


def hash_block(parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
    """Returns 16 bytes that stand for all tokens up to the end of this block; they are the same in every process."""
    return blake2b(parent_hash + array("i", token_ids).tobytes(), digest_size=16).digest()


def root_hash(tenant: str) -> bytes:
    """Returns what the first block of a tenant's chain uses as its parent's hash; it is empty for the tenant ""."""
    return blake2b(tenant.encode(), digest_size=16, person=b"tenant").digest() if tenant else b""


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """The blocks found for a prompt's beginning, first to last, and their hashes."""

    block_ids: list[int]
    hashes: list[bytes]


@dataclass(frozen=True, slots=True)
class _Entry:
    block_id: int
    token_ids: tuple[int, ...]


class PrefixCache:
    """Full committed blocks, found by the hash of all tokens up to their end.

    An entry lives until its block is evicted. Callers keep the list of a sequence's block hashes and pass it to
    `commit`, so that each block is hashed once.
    """

    def __init__(self, blocks: BlockManager, hash_function: BlockHash = hash_block) -> None:
        self._blocks = blocks
        self._hash = hash_function
        self._entries: dict[bytes, _Entry] = {}
        self._hash_of_block: dict[int, bytes] = {}
        blocks.call_on_evict(self._drop)

    def __len__(self) -> int:
        return len(self._entries)

    def lookup(self, token_ids: Sequence[int], tenant: str) -> PrefixMatch:
        """Returns the tenant's longest run of cached blocks that `token_ids` begins with.

        At least one token is left to compute. Changes nothing; pass the ids to `BlockManager.fork` before any other
        block is taken.
        """
        match = PrefixMatch([], [])
        size = self._blocks.block_size
        parent = root_hash(tenant)
        for start in range(0, len(token_ids) - size, size):
            block_tokens = token_ids[start : start + size]
            parent = self._hash(parent, block_tokens)
            entry = self._entries.get(parent)
            if entry is None or entry.token_ids != tuple(block_tokens):
                break
            match.block_ids.append(entry.block_id)
            match.hashes.append(parent)
        return match

    def next_border(self, token_ids: Sequence[int], match: PrefixMatch) -> int | None:
        """Returns how many leading tokens a match with one more block would cover; None if no match can be longer."""
        end = (len(match.block_ids) + 1) * self._blocks.block_size
        return end if end < len(token_ids) else None

    def commit(
        self,
        hashes: list[bytes],
        token_ids: Sequence[int],
        block_table: Sequence[int],
        num_computed_tokens: int,
        tenant: str,
    ) -> None:
        """Enters the blocks of `block_table` that the first `num_computed_tokens` tokens fill; only this tenant finds
        them.

        `hashes` are the hashes of the leading blocks that were entered before; those of the new blocks are appended.
        If the same content is cached already, the older block stays the cached one.
        """
        size = self._blocks.block_size
        for index in range(len(hashes), num_computed_tokens // size):
            block_tokens = token_ids[index * size : (index + 1) * size]
            block_hash = self._hash(hashes[-1] if hashes else root_hash(tenant), block_tokens)
            hashes.append(block_hash)
            if block_hash not in self._entries:
                self._enter(block_hash, _Entry(block_table[index], tuple(block_tokens)))

    def clear(self) -> None:
        """Forgets everything; blocks that nobody references become free."""
        for block_id in self._hash_of_block:
            self._blocks.forget(block_id)
        self._entries.clear()
        self._hash_of_block.clear()

    def check_integrity(self) -> None:
        """Raises RuntimeError unless entries and blocks point at each other."""
        blocks = {entry.block_id: block_hash for block_hash, entry in self._entries.items()}
        if blocks != self._hash_of_block or len(blocks) != len(self._entries):
            raise RuntimeError("prefix cache accounting is broken: entries and blocks do not match")

    def _enter(self, block_hash: bytes, entry: _Entry) -> None:
        self._entries[block_hash] = entry
        self._hash_of_block[entry.block_id] = block_hash
        self._blocks.keep(entry.block_id)

    def _drop(self, block_id: int) -> None:
        del self._entries[self._hash_of_block.pop(block_id)]


class NoPrefixCache:
    """Takes the place of a prefix cache that is switched off: it finds nothing and keeps nothing."""

    def __len__(self) -> int:
        return 0

    def lookup(self, token_ids: Sequence[int], tenant: str) -> PrefixMatch:
        """Returns an empty match."""
        return PrefixMatch([], [])

    def next_border(self, token_ids: Sequence[int], match: PrefixMatch) -> int | None:
        """Returns None, because no match will ever be longer."""

    def commit(
        self,
        hashes: list[bytes],
        token_ids: Sequence[int],
        block_table: Sequence[int],
        num_computed_tokens: int,
        tenant: str,
    ) -> None:
        """Does nothing."""

    def clear(self) -> None:
        """Does nothing."""

    def check_integrity(self) -> None:
        """Does nothing."""
