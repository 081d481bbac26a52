"""Compares the suffix drafter with a search of the texts, and tests its store, its tenants, and many sequences."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core import Draft, Plan, Request, Sequence
from paceline.drafters.suffix.drafter import PIECE_SIZE, SuffixDrafter
from paceline.drafters.suffix.native_tree import SuffixTree, propose_from_suffixes
from paceline.drafters.suffix.store import TEXT_OVERHEAD, SuffixStore
from tests.support import suffix_search
from tests.support.suffix_search import Text

MAX_BYTES_PER_TOKEN = 200
PLAN = Plan("suffix", 8)


def make_sequence(prompt, output=(), name="s", tenant=""):
    request = Request(request_id=name, prompt_token_ids=list(prompt), tenant=tenant)
    return Sequence(request=request, seed=0, token_ids=[*prompt, *output])


def propose(drafter, sequence, plan=PLAN):
    return drafter.propose([sequence], [plan]).drafts[0]


def propose_after(token_ids, plan=PLAN, **options):
    drafter, sequence = SuffixDrafter(**options), make_sequence(token_ids)
    drafter.begin(sequence)
    return propose(drafter, sequence, plan)


def say(drafter, sequence, token_ids, step_size=5):
    """Commits tokens to a sequence as an engine does, `step_size` tokens in each step."""
    for start in range(0, len(token_ids), step_size):
        sequence.token_ids += token_ids[start : start + step_size]
        drafter.observe([sequence], [])


def finish(drafter, prompt, output, name="s", tenant=""):
    """Runs a sequence from its beginning to its end."""
    sequence = make_sequence(prompt, (), name, tenant)
    drafter.begin(sequence)
    say(drafter, sequence, output)
    drafter.end(sequence)


tokens = st.lists(st.integers(0, 2), max_size=30)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(
    tokens,
    st.lists(tokens, max_size=3),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.booleans(),
    st.lists(st.integers(0, 2), max_size=8),
)
def test_proposals_are_those_of_a_search(own, store, window, stop_below, has_branches, ahead):
    max_depth = 6
    own_tree, store_tree = SuffixTree(max_depth), SuffixTree(max_depth)
    own_tree.append(own)
    for text in store:
        store_tree.begin_text([])
        store_tree.append(text)
    limits = {"window": window, "stop_below": stop_below, "has_branches": has_branches, "ahead": ahead}
    found = propose_from_suffixes(own_tree, store_tree, **limits)
    expected = suffix_search.draft([Text(own)], [Text(text) for text in store], max_depth, **limits)
    assert found[0] == [node.token_id for node in expected]
    assert found[1] == [node.parent for node in expected]
    assert found[2] == pytest.approx([node.confidence for node in expected])


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 9), st.data())
def test_a_growing_text_is_proposed_for_as_if_it_was_read_at_once(token_ids, window, data):
    drafter, sequence = SuffixDrafter(), make_sequence(token_ids[:1])
    drafter.begin(sequence)
    while len(sequence.token_ids) < len(token_ids):
        size = len(sequence.token_ids)
        sequence.token_ids += token_ids[size : size + data.draw(st.integers(1, 9))]
        plan = Plan("suffix", window)
        assert propose(drafter, sequence, plan) == propose_after(sequence.token_ids, plan)


def test_the_longest_context_wins_over_a_later_short_one():
    draft = propose_after([1, 2, 3, 7, 2, 3, 8, 1, 2, 3], Plan("suffix", 2))
    assert draft.token_ids == (7, 2)
    assert draft.drafter == "suffix"
    assert draft.is_chain


def test_a_frequent_follower_wins_over_a_late_one_and_says_how_sure_it_is():
    often = propose_after([9, 1, 5, 9, 2, 5, 9, 3, 5, 9, 4, 6, 9], Plan("suffix", 1))
    assert often == Draft() or often.confidences[0] < 0.2
    agreed = propose_after([1, 5, 2, 5, 3, 5, 1, 6, 2, 6, 3, 6, 1, 5], Plan("suffix", 1))
    assert agreed.token_ids == (2,)


def test_confidence_grows_with_the_length_of_the_match_and_with_agreement():
    matches = [
        propose_after([*range(n), 50, 60, *range(n)], Plan("suffix", 1)).confidences[0] for n in (1, 2, 4, 8, 16)
    ]
    assert matches == sorted(matches)
    assert matches[0] < 0.4
    assert matches[-1] > 0.9
    repeats = [propose_after([7, 8, 9] * n + [7], Plan("suffix", 1)).confidences[0] for n in (1, 2, 3)]
    assert repeats == sorted(repeats)


def test_a_repeating_text_is_continued_beyond_its_end():
    draft = propose_after([9, *([1, 2, 3] * 5)], Plan("suffix", 8))
    assert draft.token_ids == (1, 2, 3, 1, 2, 3, 1, 2)


@pytest.mark.parametrize(("token_ids", "window"), [([1], 4), ([1, 2, 3], 4), ([1, 2, 1, 2], 0), ([], 4)])
def test_without_match_or_window_the_draft_is_empty(token_ids, window):
    assert propose_after(token_ids, Plan("suffix", window)) == Draft()


def test_a_draft_ends_where_its_survival_sinks_too_low():
    token_ids = [*range(30), 2, 3, 4]
    whole = propose_after(token_ids, Plan("suffix", 16))
    survivals = [1.0]
    for confidence in whole.confidences:
        survivals.append(survivals[-1] * confidence)
    for stop_below in (0.3, 0.6, 0.99):
        draft = propose_after(token_ids, Plan("suffix", 16, stop_below))
        assert len(draft) == sum(survival >= stop_below for survival in survivals[1:])
    assert propose_after(token_ids, Plan("suffix", 16), min_survival=0.6) == propose_after(
        token_ids, Plan("suffix", 16, 0.6)
    )


def test_rows_that_no_chain_is_sure_of_go_to_branches():
    token_ids = [*([1, 2, 3, 4, 5, 6] * 2), 1, 2, 3, 7, 8, 1, 2, 3, 7, 9, 1, 2, 3]
    chain = propose_after(token_ids, Plan("suffix", 6), min_survival=0.01)
    tree = propose_after(token_ids, Plan("suffix", 6), min_survival=0.01, has_branches=True)
    assert chain.is_chain
    assert set(chain.children_of(None)) == {0}
    assert {tree.token_ids[node] for node in tree.children_of(None)} >= {4, 7}
    assert all(parent is None or parent < node for node, parent in enumerate(tree.parents))
    best = propose_after(token_ids, Plan("suffix", 3), min_survival=0.01, has_branches=True)
    assert best.token_ids == tree.token_ids[:3]


def test_sequences_are_independent_and_can_begin_again():
    drafter = SuffixDrafter(store_size=10_000)
    first, second = make_sequence([1, 2, 3, 1, 2], name="a"), make_sequence([1, 2, 4, 1, 2], name="b")
    drafter.begin(first)
    drafter.begin(second)
    plans = [Plan("suffix", 1), Plan("suffix", 2)]
    assert [draft.token_ids for draft in drafter.propose([first, second], plans).drafts] == [(3,), (4, 1)]
    drafter.end(first)
    drafter.begin(first)
    first.token_ids += [7, 1, 2]
    again = drafter.propose([second, first], plans).drafts
    assert again[0].token_ids == (4,)
    assert again[1] == propose_after([1, 2, 3, 1, 2, 7, 1, 2], Plan("suffix", 2))


def test_what_one_request_said_is_proposed_to_the_next_and_what_it_was_asked_is_not():
    drafter = SuffixDrafter(store_size=10_000)
    finish(drafter, prompt=range(100, 120), output=range(200, 220), name="a")
    reader = make_sequence(range(200, 206), name="b")
    drafter.begin(reader)
    assert propose(drafter, reader).token_ids == tuple(range(206, 214))
    asker = make_sequence(range(100, 106), name="c")
    drafter.begin(asker)
    assert propose(drafter, asker) == Draft()
    last_of_prompt = make_sequence(range(116, 120), name="d")
    drafter.begin(last_of_prompt)
    assert propose(drafter, last_of_prompt) == Draft()


def test_a_running_request_shares_its_text_piece_by_piece():
    drafter = SuffixDrafter(store_size=10_000)
    writer, reader = make_sequence([1], name="a"), make_sequence(range(100, 106), name="b")
    drafter.begin(writer)
    drafter.begin(reader)
    say(drafter, writer, list(range(100, 100 + PIECE_SIZE - 1)), step_size=7)
    assert propose(drafter, reader) == Draft()
    say(drafter, writer, [100 + PIECE_SIZE - 1])
    assert propose(drafter, reader).token_ids == tuple(range(106, 114))
    say(drafter, writer, list(range(100 + PIECE_SIZE, 100 + 2 * PIECE_SIZE)))
    reader.token_ids += range(106, 100 + PIECE_SIZE - 2)
    expected = range(100 + PIECE_SIZE - 2, 100 + PIECE_SIZE + 6)  # this crosses the border of two pieces
    assert propose(drafter, reader).token_ids == tuple(expected)


def test_output_from_before_a_preemption_is_not_stored_twice():
    drafter = SuffixDrafter(store_size=10_000)
    sequence = make_sequence([1, 2])
    drafter.begin(sequence)
    say(drafter, sequence, list(range(10, 30)))
    drafter.end(sequence)
    drafter.begin(sequence)
    say(drafter, sequence, list(range(30, 40)))
    drafter.end(sequence)
    tree = drafter.store.tree("")
    num_context = 20
    assert (tree.num_texts, tree.num_tokens) == (2, 30 + num_context)


@pytest.mark.parametrize("store_size", [0, 400, 20_000])
def test_no_tenant_is_proposed_what_only_another_said(store_size):
    """Each tenant has its own tokens beside common ones, so any leak shows in a proposal."""
    generator = random.Random(store_size)
    drafter = SuffixDrafter(store_size=store_size, min_survival=0.0, has_branches=True)
    own_tokens = {f"key{index}": range(1000 * index + 100, 1000 * index + 110) for index in range(3)}
    running: list[Sequence] = []
    num_drafted = num_shared = 0
    for step in range(2000):
        if len(running) < 6:
            tenant = generator.choice(list(own_tokens))
            running.append(make_sequence(generator.choices(range(4), k=6), (), f"r{step}", tenant))
            drafter.begin(running[-1])
        sequence = generator.choice(running)
        own = own_tokens[sequence.request.tenant]
        say(drafter, sequence, generator.choices([0, 1, 2, 3, *own[: generator.randrange(10)]], k=3))
        for sequence, draft in zip(running, drafter.propose(running, [PLAN] * len(running)).drafts, strict=True):
            foreign = set(draft.token_ids) - {0, 1, 2, 3, *own_tokens[sequence.request.tenant]}
            assert foreign == set()
            num_drafted += len(draft)
            num_shared += len(set(draft.token_ids) - set(sequence.token_ids))
        if generator.random() < 0.1:
            drafter.end(running.pop(generator.randrange(len(running))))
    assert num_drafted > 1000
    assert (num_shared > 0) == (store_size > 0)


def test_a_store_that_is_off_keeps_nothing():
    drafter = SuffixDrafter(store_size=0)
    finish(drafter, [1], range(100, 180))
    assert (drafter.store.num_tokens, drafter.store.size_bytes, drafter.store.tree("")) == (0, 0, None)


def test_the_oldest_text_leaves_first_whoever_it_belongs_to():
    size = 40 + TEXT_OVERHEAD
    store = SuffixStore(max_tokens=3 * size, max_match=8)
    for number, tenant in enumerate("abac"):
        store.add(tenant, [], list(range(100 * number, 100 * number + 40)))
    assert store.num_tokens == 3 * size
    assert store.tree("a").find_contexts([0]) == []
    assert store.tree("a").find_contexts([200]) == [(1, 1, [201])]
    assert store.tree("b").num_texts == 1
    store.add("c", [], list(range(40)))
    assert store.tree("b") is None
    store.add("c", [], list(range(3 * size)))
    assert store.num_tokens == 3 * size  # a text that is too large for the store is not kept
    store.add("d", [1], [])
    assert store.tree("d") is None


@pytest.mark.parametrize("num_tenants", [1, 7, 4000])
def test_the_store_stays_within_its_bound(num_tenants):
    generator = random.Random(num_tenants)
    store = SuffixStore(max_tokens=20_000, max_match=24)
    largest = 0
    for number in range(4000):
        text = generator.choices(range(300), k=generator.randrange(1, 60))
        store.add(f"key{number % num_tenants}", text[:5], text)
        assert store.num_tokens <= 20_000
        if number % 50 == 0:
            largest = max(largest, store.size_bytes)
    assert largest <= MAX_BYTES_PER_TOKEN * 20_000
    assert store.num_tokens > 19_000


@pytest.mark.parametrize("text", [[7] * 100_000, [1, 2] * 50_000, random.Random(1).choices(range(9), k=100_000)])
def test_hostile_texts_are_read_whole(text):
    """Reads texts of 100,000 tokens. If the cost of a token grew with the text, this test would take forever."""
    drafter, sequence = SuffixDrafter(store_size=50_000), make_sequence([5])
    drafter.begin(sequence)
    say(drafter, sequence, text, step_size=1000)
    draft = propose(drafter, sequence, Plan("suffix", 16))
    own = drafter._texts["s"].tree
    assert own.num_tokens == len(text) + 1
    assert own.size_bytes <= MAX_BYTES_PER_TOKEN * own.num_tokens
    assert drafter.store.num_tokens <= 50_000
    if len(set(text)) < 9:
        assert draft.token_ids == tuple(text[:16])
    drafter.end(sequence)


def test_random_tokens_get_hardly_any_drafts():
    generator = random.Random(2)
    drafter, sequence = SuffixDrafter(store_size=10_000), make_sequence(generator.choices(range(150_000), k=2000))
    drafter.begin(sequence)
    num_drafted = 0
    for _ in range(1000):
        say(drafter, sequence, [generator.randrange(150_000)])
        num_drafted += len(propose(drafter, sequence))
    assert num_drafted < 100  # of 8,000


def test_the_same_life_gives_the_same_drafts():
    def live():
        generator = random.Random(6)
        drafter = SuffixDrafter(store_size=500, has_branches=True)
        drafts = []
        for name in "abcdef":
            sequence = make_sequence(generator.choices(range(5), k=20), name=name)
            drafter.begin(sequence)
            for _ in range(20):
                say(drafter, sequence, generator.choices(range(5), k=4))
                drafts.append(propose(drafter, sequence))
            drafter.end(sequence)
        return drafts

    assert live() == live()
