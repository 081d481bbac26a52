"""Tests blocks: growing, sharing, trimming, the order of evictions, and random operations with an integrity check after
each."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paceline.kvcache import BlockManager, OutOfBlocksError, PrefixCache

BLOCK_SIZE = 4


def test_grow_appends_only_the_missing_blocks():
    blocks = BlockManager(8, BLOCK_SIZE)
    table: list[int] = []
    blocks.grow(table, 5)
    assert len(table) == 2
    first = list(table)
    blocks.grow(table, 8)
    assert table == first
    blocks.grow(table, 9)
    assert table[:2] == first
    assert len(set(table)) == 3
    assert blocks.num_free_blocks == 5
    blocks.check_integrity([table])


def test_grow_beyond_the_free_blocks_changes_nothing():
    blocks = BlockManager(2, BLOCK_SIZE)
    table: list[int] = []
    blocks.grow(table, 4)
    assert not blocks.can_grow(table, 13)
    with pytest.raises(OutOfBlocksError, match="2 KV blocks wanted, 1 free"):
        blocks.grow(table, 12)
    assert len(table) == 1
    blocks.check_integrity([table])


def test_trim_undoes_tokens_and_keeps_the_partly_filled_block():
    blocks = BlockManager(4, BLOCK_SIZE)
    table: list[int] = []
    blocks.grow(table, 16)
    kept = table[:2]
    blocks.trim(table, 5)
    assert table == kept
    assert blocks.num_free_blocks == 2
    blocks.trim(table, 0)
    assert table == []
    assert blocks.num_free_blocks == 4


def test_forked_blocks_are_free_only_after_the_last_holder_lets_go():
    blocks = BlockManager(4, BLOCK_SIZE)
    table: list[int] = []
    blocks.grow(table, 8)
    other = blocks.fork(table)
    blocks.trim(table, 0)
    assert blocks.num_free_blocks == 2
    blocks.check_integrity([table, other])
    blocks.trim(other, 0)
    assert blocks.num_free_blocks == 4


def test_the_least_recently_used_kept_block_is_evicted_first():
    blocks = BlockManager(3, BLOCK_SIZE)
    evicted: list[int] = []
    blocks.call_on_evict(evicted.append)
    tables: list[list[int]] = [[], [], []]
    for table in tables:
        blocks.grow(table, 4)
        blocks.keep(table[0])
    ids = [table[0] for table in tables]
    for index in (1, 0, 2):
        blocks.trim(tables[index], 0)
    assert blocks.num_free_blocks == 3
    again = blocks.fork([ids[1]])
    blocks.trim(again, 0)
    table: list[int] = []
    blocks.grow(table, 12)
    assert evicted == [ids[0], ids[2], ids[1]]
    blocks.check_integrity([table])


def test_integrity_check_finds_a_table_that_was_not_declared():
    blocks = BlockManager(2, BLOCK_SIZE)
    table: list[int] = []
    blocks.grow(table, 4)
    with pytest.raises(RuntimeError, match="counts differ from tables"):
        blocks.check_integrity([])


class CacheMachine(RuleBasedStateMachine):
    """Sequences of two tenants grow, fork, trim and end on few blocks with a prefix cache. They use only two tokens, so
    many prefixes are equal."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = BlockManager(9, BLOCK_SIZE)
        self.cache = PrefixCache(self.blocks)
        self.content: dict[int, tuple[str, tuple[int, ...]]] = {}
        self.sequences: list[tuple[list[int], list[int], list[bytes], str]] = []

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=24), tenant=st.sampled_from(["", "key"]))
    def begin(self, tokens, tenant):
        match = self.cache.lookup(tokens, tenant)
        assert len(match.block_ids) * BLOCK_SIZE < len(tokens)
        for index, block_id in enumerate(match.block_ids):
            assert self.content[block_id] == (tenant, tuple(tokens[: (index + 1) * BLOCK_SIZE]))
        table = self.blocks.fork(match.block_ids)
        if not self.blocks.can_grow(table, len(tokens)):
            self.blocks.trim(table, 0)
            return
        self.blocks.grow(table, len(tokens))
        self.sequences.append((tokens, table, match.hashes, tenant))
        self._commit(*self.sequences[-1])

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), extra=st.lists(st.integers(0, 1), min_size=1, max_size=6), window=st.integers(0, 6))
    def decode(self, data, extra, window):
        tokens, table, hashes, tenant = data.draw(st.sampled_from(self.sequences))
        reserved = len(tokens) + len(extra) + window
        if self.blocks.can_grow(table, reserved):
            self.blocks.grow(table, reserved)
            tokens.extend(extra)
            self.blocks.trim(table, len(tokens))
            self._commit(tokens, table, hashes, tenant)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def end(self, data):
        index = data.draw(st.integers(0, len(self.sequences) - 1))
        self.blocks.trim(self.sequences.pop(index)[1], 0)

    @rule()
    def clear(self):
        self.cache.clear()
        assert len(self.cache) == 0

    def _commit(self, tokens, table, hashes, tenant):
        for index in range(len(hashes), len(tokens) // BLOCK_SIZE):
            self.content[table[index]] = (tenant, tuple(tokens[: (index + 1) * BLOCK_SIZE]))
        self.cache.commit(hashes, tokens, table, len(tokens), tenant)

    @invariant()
    def is_sound(self):
        self.blocks.check_integrity([table for _, table, _, _ in self.sequences])
        self.cache.check_integrity()
        held = {block_id for _, table, _, _ in self.sequences for block_id in table}
        assert self.blocks.num_free_blocks == 9 - len(held)


CacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRandomOperations = CacheMachine.TestCase
