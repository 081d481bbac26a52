"""Candidates for the planner: which passes a model's draft needs, and that gains never rise with depth."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from paceline.controller.candidates import (
    DrafterHistory,
    OwnHistory,
    SequenceHistory,
    never_rising,
    new_portfolio,
)
from paceline.core import Draft


def reading_ahead(name: str = "m") -> SequenceHistory:
    """Returns the history of a sequence whose drafter reads ahead."""
    portfolio = new_portfolio()
    portfolio[name].reads_ahead = True
    return SequenceHistory(portfolio)


@pytest.mark.parametrize(
    ("confidences", "num_depths", "expected"),
    [([0.9, 0.8], 5, [1.0, 0.1, 0.28, 1.0, 1.0]), ([0.9, 0.8, 0.4], 2, [1.0, 0.1]), ([], 3, [1.0, 1.0, 1.0])],
)
def test_a_depth_takes_a_pass_unless_all_before_it_was_guessed(confidences, num_depths, expected):
    guess = Draft.chain([7] * len(confidences), "ngram", confidences)
    assert reading_ahead().pass_likelihoods("m", [guess], num_depths) == pytest.approx(expected)
    assert reading_ahead("other").pass_likelihoods("m", [guess], num_depths) == [1.0] * num_depths


@pytest.mark.parametrize("seed", range(20))
def test_never_rising_keeps_sums_and_is_the_nearest(seed):
    generator = random.Random(seed)
    values = [generator.random() for _ in range(generator.randint(1, 8))]
    found = never_rising(values)
    assert sum(found) == pytest.approx(sum(values))
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(found))
    distance = sum((a - b) ** 2 for a, b in zip(values, found, strict=True))
    for _ in range(200):
        other = sorted((generator.random() for _ in values), reverse=True)
        assert sum((a - b) ** 2 for a, b in zip(values, other, strict=True)) >= distance - 1e-12


def test_never_rising_leaves_what_falls():
    assert never_rising([3.0, 2.0, 2.0, 1.0]) == [3.0, 2.0, 2.0, 1.0]
    assert never_rising([1.0, 2.0, 3.0]) == pytest.approx([2.0, 2.0, 2.0])
    assert never_rising([]) == []


def test_the_best_free_chain_is_the_guess():
    short = Draft.chain([1], "a", [0.95])
    long = Draft((1, 2, 3), (None, 0, 0), (0.9, 0.8, 0.1), "b")  # a chain of two nodes and a branch
    found = reading_ahead().pass_likelihoods("m", [short, long], 3)
    assert found == pytest.approx([1.0, 1.0 - 0.9, 1.0 - 0.72])


def test_a_drafter_that_goes_on_where_it_is_right_is_worth_more_than_its_rates_by_themselves_say():
    usual = DrafterHistory()
    for count in range(400):
        draft = Draft.chain([1] * 4, "m") if count % 2 else Draft.chain([0], "m")
        OwnHistory(usual).learn_made(draft, 8, [1] * 6)
    found = OwnHistory(usual).expectation(5)
    assert found.accepted[:4] == pytest.approx([0.5] * 4, abs=0.04)
    assert found.drafted[:4] == pytest.approx([1.0, 0.5, 0.5, 0.5], abs=0.04)
    assert found.accepted[4] < 0.05


def test_a_drafter_that_stops_is_expected_to_stop_and_to_be_right_if_it_went_on():
    own = OwnHistory(DrafterHistory())
    for _ in range(60):
        own.learn_made(Draft.chain([1], "m"), 8, (1, 2))
    found = own.expectation(4)
    assert found.accepted[0] > 0.9
    assert found.accepted[1] < 0.2
    assert found.continuation > 0.9


def test_a_free_draft_ends_before_the_first_node_that_is_less_likely_than_its_floor():
    own = OwnHistory(DrafterHistory())
    draft = Draft.chain([1, 2, 3, 4], "a", [0.9, 0.9, 0.5, 0.9])
    assert own.free_candidate(draft, [0.0] * 4).gains == pytest.approx([0.9, 0.81, 0.405, 0.3645])
    assert own.free_candidate(draft, [0.0, 0.5, 0.5, 0.0]).gains == pytest.approx([0.9, 0.81])
    assert own.free_candidate(draft, [0.0]).gains == pytest.approx([0.9])


def learnt_depths(draft: Draft, window: int, committed: Sequence[int]) -> tuple[list[float], float]:
    """Returns what was recorded by depth (None: nothing), and of tokens that were drafted, after one draft."""
    own = OwnHistory(DrafterHistory())
    own.learn_made(draft, window, committed)
    depths = [own.advance[depth].above for depth in range(len(own.advance))]
    return depths, own.usual.continuation.below


def test_a_fully_accepted_window_is_no_evidence_of_what_would_have_followed():
    assert learnt_depths(Draft.chain([1, 2], "m"), 2, (1, 2, 3)) == ([1.0, 1.0], pytest.approx(1.995))


def test_depths_below_a_rejected_node_are_no_evidence():
    assert learnt_depths(Draft.chain([1, 2, 3], "m"), 8, (1, 9)) == ([1.0, 0.0], pytest.approx(1.995))


def test_a_drafter_that_stops_is_not_one_that_is_wrong():
    assert learnt_depths(Draft.chain([1], "m"), 8, (1, 2)) == ([1.0, 0.0], 1.0)
    assert learnt_depths(Draft(drafter="m"), 8, (1,)) == ([0.0], 0.0)


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.9])
def test_expectations_approach_the_truth_whatever_the_windows(rate):
    generator = random.Random(5)
    usual = DrafterHistory()
    for _ in range(4000):
        window = generator.randint(1, 6)
        num_right = next((n for n in range(9) if generator.random() > rate), 9)
        draft = Draft.chain([1 if depth < num_right else 0 for depth in range(window)], "m")
        OwnHistory(usual).learn_made(draft, window, [1] * (min(num_right, window) + 1))
    found = OwnHistory(usual).expectation(4).accepted
    rates = [later / earlier for earlier, later in pairwise((1.0, *found))]
    assert rates == pytest.approx([rate] * 4, abs=0.12)
