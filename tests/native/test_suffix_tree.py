"""Compares the suffix tree with a search of the texts, and tests its memory and what eviction leaves."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline import _native
from tests.support.suffix_search import Text, search

MAX_BYTES_PER_TOKEN = 200


def build(texts: list[Text], max_depth: int) -> _native.SuffixTree:
    tree = _native.SuffixTree(max_depth)
    for text in texts:
        tree.begin_text(text.token_ids[: text.num_context])
        tree.append(text.token_ids[text.num_context :])
    return tree


def small_texts(num_symbols: int) -> st.SearchStrategy[list[Text]]:
    tokens = st.lists(st.integers(0, num_symbols - 1), max_size=25)
    return st.lists(
        st.builds(lambda text, context: Text(text, min(context, len(text))), tokens, st.integers(0, 4)), max_size=5
    )


@settings(deadline=None, max_examples=400, derandomize=True)
@given(st.integers(1, 3).flatmap(small_texts), st.lists(st.integers(0, 2), max_size=12), st.integers(1, 7), st.data())
def test_contexts_are_those_of_a_search_before_and_after_eviction(texts, query, max_depth, data):
    tree = build(texts, max_depth)
    assert tree.find_contexts(query) == search(texts, query, max_depth)
    for _ in range(data.draw(st.integers(0, len(texts)))):
        tree.evict_text()
        texts = texts[1:]
        assert tree.find_contexts(query) == search(texts, query, max_depth)
        assert tree.num_nodes == build(texts, max_depth).num_nodes
    assert (tree.num_texts, tree.num_tokens) == (len(texts), sum(len(text.token_ids) for text in texts))


@pytest.mark.parametrize(("num_symbols", "max_depth"), [(1, 5), (2, 16), (4, 3), (50, 24)])
def test_a_long_life_of_texts_that_come_and_go(num_symbols, max_depth):
    generator = random.Random(num_symbols)
    texts: list[Text] = []
    tree = _native.SuffixTree(max_depth)
    for _ in range(150):
        token_ids = generator.choices(range(num_symbols), k=generator.randrange(40))
        text = Text(token_ids, generator.randrange(len(token_ids) + 1))
        tree.begin_text(text.token_ids[: text.num_context])
        for token_id in text.token_ids[text.num_context :]:  # one by one, as in a running sequence
            tree.append([token_id])
        texts.append(text)
        if len(texts) > 6:
            tree.evict_text()
            del texts[0]
        for query in (text.token_ids, [generator.randrange(num_symbols) for _ in range(5)]):
            assert tree.find_contexts(query) == search(texts, query, max_depth)
    while tree.num_texts:
        tree.evict_text()
    assert (tree.num_nodes, tree.num_tokens) == (0, 0)


TEXTS = {
    "random": lambda n: random.Random(3).choices(range(150_000), k=n),
    "random bits": lambda n: random.Random(4).choices([0, 1], k=n),
    "one token": lambda n: [7] * n,
    "long period": lambda n: (list(range(977)) * (n // 977 + 1))[:n],
    "one token before all": lambda n: [token_id for i in range(n // 2) for token_id in (5, 1000 + i)],
}


@pytest.mark.parametrize("name", TEXTS)
def test_memory_is_bounded_whatever_the_text(name):
    tree = _native.SuffixTree(24)
    text = TEXTS[name](100_000)
    tree.append(text)
    assert tree.num_tokens == len(text)
    assert tree.num_nodes <= 2 * len(text)
    assert tree.size_bytes <= MAX_BYTES_PER_TOKEN * len(text)
    assert tree.find_contexts(text[:40])[-1][0] == 24


def test_memory_does_not_grow_while_texts_replace_each_other():
    generator = random.Random(9)
    tree = _native.SuffixTree(24)
    sizes = []
    for number in range(600):
        tree.begin_text([])
        tree.append(generator.choices(range(200), k=100))
        if tree.num_texts > 50:
            tree.evict_text()
        if number % 100 == 99:
            sizes.append(tree.size_bytes)
    assert max(sizes) <= 1.1 * sizes[0]


def test_nothing_is_found_in_an_empty_tree_or_without_a_text():
    tree = _native.SuffixTree(4)
    assert tree.find_contexts([1, 2]) == []
    tree.evict_text()
    tree.append([1, 2, 1])
    assert tree.find_contexts([]) == []
    assert tree.find_contexts([9]) == []
    assert tree.find_contexts([1]) == [(1, 1, [2])]
    tree.evict_text()
    tree.append([4])
    assert (tree.num_texts, tree.num_tokens, tree.find_contexts([1])) == (1, 1, [])


@pytest.mark.parametrize("max_depth", [0, -1, 1 << 16])
def test_a_depth_out_of_range_is_refused(max_depth):
    with pytest.raises(ValueError, match="max_depth"):
        _native.SuffixTree(max_depth)
