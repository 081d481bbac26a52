"""Tests the prefix cache: which blocks enter it, which are found, and that an equal hash alone is never trusted."""

from __future__ import annotations

import pytest

from paceline.kvcache import BlockManager, NoPrefixCache, PrefixCache
from paceline.kvcache.prefix_cache import hash_block

TOKENS = list(range(10, 24))


def filled(cache: PrefixCache, blocks: BlockManager, tokens: list[int], tenant: str = "") -> list[int]:
    table: list[int] = []
    blocks.grow(table, len(tokens))
    cache.commit([], tokens, table, len(tokens), tenant)
    return table


def test_only_full_blocks_enter_and_the_longest_prefix_is_found():
    blocks = BlockManager(8, 4)
    cache = PrefixCache(blocks)
    table = filled(cache, blocks, TOKENS)
    assert len(cache) == 3
    assert cache.lookup(TOKENS, "").block_ids == table[:3]
    assert cache.lookup([*TOKENS[:8], 99, 98, 97, 96, 95], "").block_ids == table[:2]
    assert cache.lookup([99, *TOKENS[1:]], "").block_ids == []


def test_one_token_is_always_left_to_compute():
    blocks = BlockManager(8, 4)
    cache = PrefixCache(blocks)
    table = filled(cache, blocks, TOKENS)
    assert cache.lookup(TOKENS[:12], "").block_ids == table[:2]
    assert cache.lookup(TOKENS[:13], "").block_ids == table[:3]


def test_a_block_in_the_middle_is_found_only_after_the_same_beginning():
    blocks = BlockManager(8, 4)
    cache = PrefixCache(blocks)
    filled(cache, blocks, TOKENS)
    assert cache.lookup(TOKENS[4:], "").block_ids == []


def test_equal_hashes_of_different_tokens_are_no_hit():
    blocks = BlockManager(8, 4)
    cache = PrefixCache(blocks, hash_function=lambda parent, tokens: b"same")
    filled(cache, blocks, TOKENS[:5])
    assert cache.lookup([1, 2, 3, 4, 5], "").block_ids == []
    assert len(cache.lookup(TOKENS[:5], "").block_ids) == 1


@pytest.mark.parametrize(("owner", "other"), [("key-1", "key-2"), ("", "key-1"), ("key-1", "")])
def test_no_tenant_finds_what_another_computed(owner: str, other: str):
    blocks = BlockManager(8, 4)
    cache = PrefixCache(blocks)
    table = filled(cache, blocks, TOKENS, owner)
    assert cache.lookup(TOKENS, other).block_ids == []
    own = filled(cache, blocks, TOKENS, other)
    assert cache.lookup(TOKENS, other).block_ids == own[:3]
    assert cache.lookup(TOKENS, owner).block_ids == table[:3]
    assert len(cache) == 6
    cache.check_integrity()


def test_an_evicted_block_is_found_no_more():
    blocks = BlockManager(3, 4)
    cache = PrefixCache(blocks)
    table = filled(cache, blocks, TOKENS[:12])
    beginning = table[0]
    blocks.trim(table, 0)
    other: list[int] = []
    blocks.grow(other, 8)
    assert cache.lookup(TOKENS[:13], "").block_ids == [beginning]
    cache.check_integrity()
    blocks.check_integrity([other])


def test_content_computed_twice_keeps_the_first_block():
    blocks = BlockManager(8, 4)
    cache = PrefixCache(blocks)
    first = filled(cache, blocks, TOKENS[:4])
    second = filled(cache, blocks, TOKENS[:4])
    assert cache.lookup(TOKENS[:5], "").block_ids == first
    blocks.trim(second, 0)
    assert blocks.num_free_blocks == 7
    blocks.check_integrity([first])


def test_the_hash_is_stable_across_processes():
    assert hash_block(b"", [1, 2, 3, 4]).hex() == "5c3887ef44b86da26265cb5c108a056b"


def test_no_prefix_cache_finds_nothing():
    cache = NoPrefixCache()
    cache.commit([], TOKENS, [0, 1, 2, 3], 12, "")
    assert len(cache) == 0
    assert cache.lookup(TOKENS, "").block_ids == []
