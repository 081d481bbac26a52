"""Drafts that are being made: where a chain ends, and which second choices become branches, compared with an
enumeration."""

from __future__ import annotations

import itertools
import random

import pytest

from paceline.core import Calibration, Draft, Plan
from paceline.core.draft_tree import chain_length, survivals
from paceline.drafters.chains.growing_draft import DraftToken, GrowingDraft


def grow(plan: Plan, guesses: list[DraftToken]) -> Draft:
    growing = GrowingDraft(plan, plan.window)
    for guess in guesses:
        if not growing.push_all([guess], []):
            break
    return growing.finish("model")


def guesses(generator: random.Random, count: int) -> list[DraftToken]:
    result = []
    for index in range(count):
        first = generator.uniform(0.3, 1.0)
        second = DraftToken(100 + index, generator.uniform(0.0, 1.0 - first))
        result.append(DraftToken(index, first, second if generator.random() < 0.8 else None))
    return result


def test_a_chain_ends_with_its_window_or_where_its_plan_says():
    likely = [DraftToken(token_id, 0.9) for token_id in range(8)]
    assert grow(Plan("model", 3), likely).token_ids == (0, 1, 2)
    assert len(grow(Plan("model", 8, stop_below=0.7), likely)) == 3
    assert len(grow(Plan("model", 8, deepen_above=(0.1, 0.85, 0.85)), likely)) == 2
    assert len(grow(Plan("model", 8, stop_below=0.7, calibration=Calibration(1.0, 5.0)), likely)) == 8
    assert grow(Plan("model", 8, stop_below=0.95), likely) == Draft(drafter="model")  # it drew an unlikely token
    assert GrowingDraft(Plan("model", 8), 8).finish("model") == Draft()  # it drew no token


def test_a_pass_that_read_ahead_gives_nodes_as_long_as_what_it_read_is_what_was_drawn():
    three = [DraftToken(token_id, 0.9) for token_id in (4, 5, 6)]
    for known, expected in (([], [4]), ([4, 5], [4, 5, 6]), ([4, 7], [4, 5]), ([7, 5], [4])):
        growing = GrowingDraft(Plan("model", 8), 8)
        assert growing.push_all(three[: 1 + len(known)], known)
        assert growing.token_ids == expected
    growing = GrowingDraft(Plan("model", 8, deepen_above=(0.0, 1.1), stop_below=0.8), 8)
    assert not growing.push_all(three, [4, 5])  # the second node needs no extra pass, and the third is unlikely
    assert growing.token_ids == [4, 5]
    growing = GrowingDraft(Plan("model", 2), 2)
    assert not growing.push_all(three, [4, 5])
    assert growing.token_ids == [4, 5]
    assert not GrowingDraft(Plan("model", 2), 2).push_all([None], [])


def test_branches_hang_beside_the_chains_nodes_and_take_what_is_left_of_the_window():
    plain = [
        DraftToken(0, 0.6, DraftToken(10, 0.3)),
        DraftToken(1, 0.6, DraftToken(11, 0.1)),
        DraftToken(2, 0.5, DraftToken(12, 0.4)),
    ]
    draft = grow(Plan("model", 8, deepen_above=(0.0, 0.2), branch_above=(0.1,) * 8), plain)
    assert draft.token_ids == (0, 1, 2, 10, 12)  # 0.3 and 0.144; 0.06 is not worth a row
    assert draft.parents == (None, 0, 1, None, 1)
    assert draft.confidences == (0.6, 0.6, 0.5, 0.3, 0.4)
    assert chain_length(draft) == 3
    assert grow(Plan("model", 3, branch_above=(0.1,) * 3), plain).is_chain
    assert grow(Plan("model", 4, deepen_above=(0.0, 0.2), branch_above=(0.1,) * 4), plain).token_ids == (0, 1, 2, 10)
    assert grow(Plan("model", 8), plain).is_chain


def test_a_second_choice_is_only_sought_where_it_could_be_worth_a_row():
    growing = GrowingDraft(Plan("model", 4, branch_above=(0.5, 0.2, 0.3)), 4)
    assert growing.may_branch(0.7)
    assert not growing.may_branch(0.9)
    growing.push(DraftToken(0, 0.5))
    assert not growing.may_branch(0.7)
    assert not GrowingDraft(Plan("model", 4), 4).may_branch(0.1)


@pytest.mark.parametrize("seed", range(60))
def test_no_other_choice_of_branches_is_worth_more(seed):
    generator = random.Random(seed)
    window = generator.randint(1, 8)
    prices = sorted(generator.uniform(0.01, 0.3) for _ in range(window))
    plan = Plan("model", window, deepen_above=(generator.uniform(0.1, 0.6),) * window, branch_above=tuple(prices))
    all_guesses = guesses(generator, window)
    draft = grow(plan, all_guesses)
    length = chain_length(draft)
    values = survivals(draft, draft.confidences)
    found = sum(values[length:]) - sum(prices[length : len(draft)])
    above = [1.0, *values[: length - 1]]
    possible = [
        above[depth] * second.confidence
        for depth, guess in enumerate(all_guesses[:length])
        if (second := guess.second) is not None
    ]
    best = max(
        sum(chosen) - sum(prices[length : length + size])
        for size in range(min(len(possible), window - length) + 1)
        for chosen in itertools.combinations(possible, size)
    )
    assert found == pytest.approx(best)
    assert length == chain_length(grow(Plan("model", window, deepen_above=plan.deepen_above), all_guesses))
