"""Candidates for the planner: which passes a model's draft needs, and that gains never rise with depth."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from paceline.controller.candidates import (
    Expectation,
    OwnHistory,
    Portfolio,
    SequenceHistory,
    made_candidate,
    never_rising,
    pass_likelihoods,
)
from paceline.core import Draft


def test_a_depth_takes_a_pass_unless_all_before_it_was_guessed():
    assert pass_likelihoods([0.9, 0.5], 5) == pytest.approx([1.0, 0.1, 0.5, 1.0, 1.0])
    assert pass_likelihoods([0.9, 0.5, 0.4], 2) == pytest.approx([1.0, 0.1])
    assert pass_likelihoods([], 3) == [1.0, 1.0, 1.0]


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


def test_the_worth_of_a_made_draft_is_what_it_brings_less_the_passes_and_rows_it_takes():
    expectation = Expectation((0.9, 0.8, 0.6), 0.9)
    shared_s, own_s, row_s, rate = 0.3, 0.05, 0.1, 0.7
    passes = [1.0, 0.2, 0.9]
    candidate = made_candidate("m", expectation, passes, shared_s, own_s, row_s, rate, 0.0)
    price = rate * (candidate.depth_s + candidate.node_s + row_s)
    num_passes = 1.0 + 0.9 * 0.2 + 0.8 * 0.9
    cost_s = num_passes * (shared_s + own_s) + (1.0 + 0.9 + 0.8) * row_s
    assert sum(candidate.gains) - 3 * price == pytest.approx(0.9 + 0.8 + 0.6 - rate * cost_s)


def test_the_best_free_chain_is_the_guess():
    portfolio, history = Portfolio(), SequenceHistory({"a": OwnHistory(), "b": OwnHistory()})
    short = Draft.chain([1], "a", [0.95])
    long = Draft((1, 2, 3), (None, 0, 0), (0.9, 0.8, 0.1), "b")  # a chain of two nodes and a branch
    assert portfolio.guesses([short, long], history) == pytest.approx([0.9, 0.72])
    assert portfolio.guesses([], history) == []


def test_a_drafter_that_goes_on_where_it_is_right_is_worth_more_than_its_rates_by_themselves_say():
    portfolio, own = Portfolio(["m"]), OwnHistory()
    for count in range(400):
        draft = Draft.chain([1] * 4, "m") if count % 2 else Draft.chain([0], "m")
        portfolio.learn_made(draft, 8, OwnHistory(), [1] * 6)
    found = portfolio.expectation("m", own, 5)
    assert found.accepted[:4] == pytest.approx([0.5] * 4, abs=0.04)
    assert found.drafted[:4] == pytest.approx([1.0, 0.5, 0.5, 0.5], abs=0.04)
    assert found.accepted[4] < 0.05


def test_a_drafter_that_stops_is_expected_to_stop_and_to_be_right_if_it_went_on():
    portfolio, own = Portfolio(["m"]), OwnHistory()
    for _ in range(60):
        portfolio.learn_made(Draft.chain([1], "m"), 8, own, (1, 2))
    found = portfolio.expectation("m", own, 4)
    assert found.accepted[0] > 0.9
    assert found.accepted[1] < 0.2
    assert found.continuation > 0.9


def test_a_free_draft_ends_before_the_first_node_that_is_less_likely_than_its_floor():
    portfolio, own = Portfolio(), OwnHistory()
    draft = Draft.chain([1, 2, 3, 4], "a", [0.9, 0.9, 0.5, 0.9])
    assert portfolio.free_candidate(draft, own, [0.0] * 4).gains == pytest.approx([0.9, 0.81, 0.405, 0.3645])
    assert portfolio.free_candidate(draft, own, [0.0, 0.5, 0.5, 0.0]).gains == pytest.approx([0.9, 0.81])
    assert portfolio.free_candidate(draft, own, [0.0]).gains == pytest.approx([0.9])
