"""Compares the planner with an enumeration of all plans, on random costs with jumps."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import pytest

from paceline.controller.planner import PLAIN, Alternatives, Candidate, Pick, best_plan, num_expected, plan_s, value

NUM_CASES = 150


def enumerate_best(
    alternatives: Alternatives, steps_s: Sequence[float], score: Callable[[Sequence[Pick]], float]
) -> float:
    """Returns the best score of all plans that fit."""
    options = [
        [PLAIN, *(Pick(i, window) for i, c in enumerate(candidates) for window in range(1, len(c.gains) + 1))]
        for candidates in alternatives
    ]
    plans = itertools.product(*options)
    return max(score(plan) for plan in plans if sum(choice.window for choice in plan) < len(steps_s))


def falling(generator: random.Random, size: int, power: float) -> list[float]:
    gains, survival = [], 1.0
    for _ in range(size):
        survival *= generator.random() ** power
        gains.append(survival)
    return gains


def random_case(
    generator: random.Random, num_sequences: int, num_nodes: int, num_free: int, num_models: int
) -> tuple[list[list[Candidate]], list[float]]:
    """Returns random candidates, and step times that rise in jumps."""
    depths_s = [generator.uniform(0.01, 0.5) for _ in range(num_models)]
    alternatives = []
    for _ in range(num_sequences):
        own = [Candidate("free", falling(generator, generator.randint(0, num_nodes), 0.5)) for _ in range(num_free)]
        for number, depth_s in enumerate(depths_s):
            gains = falling(generator, generator.randint(1, num_nodes), 0.3)
            price_s = generator.choice([0.0, generator.uniform(0.0, 0.5)])
            own.append(Candidate(f"model {number}", gains, generator.uniform(0.0, 0.05), price_s, depth_s))
        alternatives.append(own)
    rises = (generator.choice([0.0, 0.02, 0.1, 0.6]) for _ in range(generator.randint(1, num_sequences * num_nodes)))
    return alternatives, list(itertools.accumulate(rises, initial=1.0))


def speed(alternatives: Alternatives, plan: Sequence[Pick], steps_s: Sequence[float]) -> float:
    return (len(alternatives) + num_expected(alternatives, plan)) / plan_s(alternatives, plan, steps_s)


def fastest_plan(alternatives: Alternatives, steps_s: Sequence[float]) -> list[Pick]:
    """Returns the plan with the most expected tokens per second, each sequence's own token included.

    It uses Dinkelbach's method.
    """
    rate = len(alternatives) / steps_s[0]
    while True:
        picks = best_plan(alternatives, steps_s, rate)
        faster = speed(alternatives, picks, steps_s)
        if faster <= rate * (1.0 + 1e-12):
            return picks
        rate = faster


EXACT = [(1, 6, 1, 0), (1, 6, 2, 1), (1, 5, 0, 1), (1, 5, 1, 2), (2, 5, 1, 0), (3, 3, 1, 0), (4, 2, 1, 0)]
NEAR = [(2, 4, 1, 1), (3, 3, 1, 1), (3, 3, 2, 0), (3, 2, 2, 1), (2, 3, 1, 2), (3, 2, 1, 2)]


@pytest.mark.parametrize("shape", EXACT, ids=str)
def test_a_plan_is_the_best_of_all(shape):
    generator = random.Random(1)
    for _ in range(NUM_CASES):
        alternatives, steps_s = random_case(generator, *shape)
        rate = generator.uniform(0.3, 1.5) * len(alternatives)
        found = value(alternatives, best_plan(alternatives, steps_s, rate), steps_s, rate)
        best = enumerate_best(
            alternatives, steps_s, lambda plan, o=alternatives, s=steps_s, r=rate: value(o, plan, s, r)
        )
        assert found == pytest.approx(best, abs=1e-9)
        fastest = enumerate_best(alternatives, steps_s, lambda plan, o=alternatives, s=steps_s: speed(o, plan, s))
        assert speed(alternatives, fastest_plan(alternatives, steps_s), steps_s) == pytest.approx(fastest, abs=1e-9)


@pytest.mark.parametrize("shape", NEAR, ids=str)
def test_a_plan_of_several_drafters_is_near_the_best(shape):
    generator = random.Random(2)
    shares = []
    for _ in range(NUM_CASES):
        alternatives, steps_s = random_case(generator, *shape)
        fastest = enumerate_best(alternatives, steps_s, lambda plan, o=alternatives, s=steps_s: speed(o, plan, s))
        shares.append(speed(alternatives, fastest_plan(alternatives, steps_s), steps_s) / fastest)
    assert min(shares) > 0.8
    assert sum(shares) / len(shares) > 0.99


def test_a_plan_never_takes_more_rows_than_there_are():
    generator = random.Random(3)
    for num_sequences, num_models in itertools.product((1, 2, 5, 32), (1, 2)):
        alternatives, _ = random_case(generator, num_sequences, 16, 2, num_models)
        for spare in (0, 1, 7):
            plan = best_plan(alternatives, [1.0] * (spare + 1), 0.1)
            assert sum(choice.window for choice in plan) <= spare


def test_plain_decoding_is_chosen_where_nothing_pays():
    alternatives = [[Candidate("free", [0.3, 0.1])], [Candidate("free", [0.2])]]
    assert best_plan(alternatives, [1.0, 1.5, 2.0, 2.5], 2.0) == [PLAIN, PLAIN]
    assert best_plan(alternatives, [1.0, 1.0, 1.0, 1.0], 2.0) == [Pick(0, 2), Pick(0, 1)]


def test_a_jump_is_taken_only_if_what_lies_behind_it_repays_it():
    steps_s = [1.0, 1.0, 1.4, 1.4, 1.4]
    assert best_plan([[Candidate("free", [0.9, 0.5, 0.2, 0.1])]], steps_s, 1.0) == [Pick(0, 4)]
    assert best_plan([[Candidate("free", [0.9, 0.2, 0.1])]], steps_s, 1.0) == [Pick(0, 1)]


def test_a_depth_is_paid_once_for_all_sequences():
    alone = [Candidate("model", [0.6], 0.0, 0.0, 0.8)]
    assert best_plan([alone], [1.0, 1.0], 1.0) == [PLAIN]
    assert best_plan([alone, alone], [1.0, 1.0, 1.0], 1.0) == [Pick(0, 1), Pick(0, 1)]


def test_a_price_must_be_repaid():
    def alternative(price_s: float) -> list[Candidate]:
        return [Candidate("model", [0.8, 0.7], 0.0, price_s, 0.1)]

    assert best_plan([alternative(1.2)], [1.0, 1.0, 1.0], 1.0) == [Pick(0, 2)]
    assert best_plan([alternative(1.4)], [1.0, 1.0, 1.0], 1.0) == [PLAIN]
