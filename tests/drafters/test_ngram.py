"""Compares the n-gram drafter with a search of the whole text, and runs it with many sequences."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core import Draft, Plan, Request, Sequence
from paceline.drafters.ngram import NgramDrafter


def _sequence(token_ids, name="s"):
    return Sequence(
        request=Request(request_id=name, prompt_token_ids=list(token_ids)), seed=0, token_ids=list(token_ids)
    )


def _propose(token_ids, window, *, stop_below=0.0, **options):
    drafter = NgramDrafter(**options)
    sequence = _sequence(token_ids)
    drafter.begin(sequence)
    return drafter.propose([sequence], [Plan("ngram", window, stop_below)]).drafts[0]


def _search(token_ids, window, min_match, max_match):
    """Returns the tokens by the definition: what followed the last occurrence of the longest suffix that occurred
    before."""
    for n in range(min(max_match, len(token_ids) - 1), min_match - 1, -1):
        suffix = token_ids[-n:]
        for end in range(len(token_ids) - 1, n - 1, -1):
            if token_ids[end - n : end] == suffix:
                text = list(token_ids)
                for i in range(window):
                    text.append(text[end + i])
                return text[len(token_ids) :]
    return []


@settings(deadline=None, max_examples=300, derandomize=True)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=60),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(0, 2),
    st.lists(st.integers(1, 6), max_size=8),
)
def test_proposals_are_those_of_a_search_at_every_step(token_ids, window, min_match, extra_match, growths):
    drafter = NgramDrafter(min_match=min_match, max_match=min_match + extra_match)
    sequence = _sequence(token_ids[:1])
    drafter.begin(sequence)
    ends = [1, *(1 + sum(growths[: i + 1]) for i in range(len(growths))), len(token_ids)]
    for end in ends:
        sequence.token_ids = token_ids[: max(end, len(sequence.token_ids))]
        [draft] = drafter.propose([sequence], [Plan("ngram", window)]).drafts
        expected = _search(sequence.token_ids, window, min_match, min_match + extra_match)
        assert list(draft.token_ids) == expected
        assert draft.is_chain


def test_the_longest_match_wins_over_a_later_short_one():
    draft = _propose([1, 2, 3, 7, 2, 3, 8, 1, 2, 3], 2)
    assert draft.token_ids == (7, 2)
    assert draft.confidences == (0.75, 0.75)
    assert draft.drafter == "ngram"


def test_of_equal_matches_the_last_wins():
    assert _propose([1, 2, 5, 1, 2, 6, 1, 2], 1).token_ids == (6,)


def test_a_repeating_text_is_continued_beyond_its_end():
    assert _propose([9, 1, 2, 3, 1, 2, 3], 8).token_ids == (1, 2, 3, 1, 2, 3, 1, 2)


def test_large_token_ids_do_not_collide():
    large = 262_143
    assert _propose([0, large, 5, large, 0, 6, 0, large], 1).token_ids == (5,)
    assert _propose([large, 3, 0, large], 1, min_match=2) == Draft()


@pytest.mark.parametrize(("token_ids", "window"), [([1], 4), ([1, 2, 3], 4), ([1, 2, 1, 2], 0)])
def test_without_match_or_window_the_draft_is_empty(token_ids, window):
    assert _propose(token_ids, window) == Draft()


def test_a_draft_ends_where_its_survival_sinks_too_low():
    token_ids = [1, 2, 3, 4, 5, 6, 7, 8, 2, 3, 4]
    assert len(_propose(token_ids, 4, stop_below=0.5)) == 2  # 0.75, 0.5625, 0.42
    assert len(_propose(token_ids, 4, stop_below=0.8)) == 0


def test_sequences_are_independent_and_can_begin_again():
    drafter = NgramDrafter()
    first, second = _sequence([1, 2, 3, 1, 2], "a"), _sequence([1, 2, 4, 1, 2], "b")
    drafter.begin(first)
    drafter.begin(second)
    plans = [Plan("ngram", 1), Plan("ngram", 2)]
    assert [draft.token_ids for draft in drafter.propose([first, second], plans).drafts] == [(3,), (4, 1)]
    drafter.end(first)
    drafter.begin(first)
    first.token_ids += [7, 1, 2]
    assert [draft.token_ids for draft in drafter.propose([second, first], plans).drafts] == [(4,), (7, 1)]
