"""What the controller learns from drafts: judgements, calibration and expectations, with censored evidence."""

from __future__ import annotations

import random

import pytest

from paceline.controller.acceptance import (
    ConfidenceModel,
    Judgement,
    Rate,
    SequenceBias,
    calibrated_survivals,
    judge,
    judge_chain,
)
from paceline.core import Calibration, Draft, Plan

TREE = Draft((5, 6, 7, 8), (None, 0, None, 2), (0.9, 0.8, 0.7, 0.6), "tree")


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        ((1, 2, 3, 4), [(0, True), (1, True), (2, True)]),
        ((1, 9), [(0, True), (1, False)]),
        ((9, 2, 3), [(0, False)]),
        ((1,), [(0, True)]),
        ((), []),
    ],
)
def test_a_chain_is_judged_as_far_as_the_target_decided(committed, expected):
    judgements = judge(Draft.chain([1, 2, 3], "ngram", [0.5, 0.6, 0.7]), committed)
    assert [(item.depth, item.is_accepted) for item in judgements] == expected


def test_siblings_are_judged_and_what_hangs_below_a_wrong_node_is_not():
    assert judge(TREE, (7, 9)) == [Judgement(0, 0.9, False), Judgement(0, 0.7, True), Judgement(1, 0.6, False)]


def test_survival_multiplies_down_the_tree():
    assert calibrated_survivals(TREE, Calibration()) == pytest.approx([0.9, 0.72, 0.7, 0.42])
    assert calibrated_survivals(Draft.chain([1, 2], "x", [1.0, 1.0]), Calibration()) == pytest.approx([0.98, 0.98**2])


def test_a_calibration_rises_with_confidence_and_stays_a_probability():
    calibration = Calibration(1.5, -0.7)
    values = [calibration.probability(confidence / 20) for confidence in range(21)]
    assert values == sorted(values)
    assert 0.0 < values[0] < values[-1] < 1.0


@pytest.mark.parametrize(("offset", "slope"), [(-1.5, 1.0), (0.8, 1.0), (0.0, 0.4)])
def test_confidence_learns_what_it_is_worth(offset, slope):
    generator = random.Random(7)
    truth = Calibration(slope, offset)
    model = ConfidenceModel()
    errors = []
    for number in range(6000):
        own = SequenceBias()
        confidence = generator.uniform(0.05, 0.95)
        is_accepted = generator.random() < truth.probability(confidence)
        predicted = model.calibration(own).probability(confidence)
        model.learn(Judgement(0, confidence, is_accepted), own)
        if number > 4000:
            errors.append(abs(predicted - truth.probability(confidence)))
    assert sum(errors) / len(errors) < 0.06


def test_a_sequence_learns_faster_than_its_drafter():
    model, own = ConfidenceModel(), SequenceBias()
    for _ in range(6):
        model.learn(Judgement(0, 0.9, False), own)
    assert model.calibration(own).probability(0.9) < 0.5
    assert model.calibration(SequenceBias()).probability(0.9) > model.calibration(own).probability(0.9)


def outcomes(draft: Draft, window: int, committed: tuple[int, ...]) -> list[tuple[int, bool, bool]]:
    return [(node.depth, node.is_drafted, node.is_accepted) for node in judge_chain(draft, window, committed)]


def test_a_fully_accepted_window_is_no_evidence_of_what_would_have_followed():
    assert outcomes(Draft.chain([1, 2], "m"), 2, (1, 2, 3)) == [(0, True, True), (1, True, True)]


def test_depths_below_a_rejected_node_are_no_evidence():
    assert outcomes(Draft.chain([1, 2, 3], "m"), 8, (1, 9)) == [(0, True, True), (1, True, False)]


def test_a_drafter_that_stops_is_not_one_that_is_wrong():
    assert outcomes(Draft.chain([1], "m"), 8, (1, 2)) == [(0, True, True), (1, False, False)]
    assert outcomes(Draft(drafter="m"), 8, (1,)) == [(0, False, False)]


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.9])
def test_rates_by_depth_approach_the_truth_whatever_the_windows(rate):
    generator = random.Random(5)
    usual = [Rate.of_drafter() for _ in range(9)]
    for _ in range(4000):
        window = generator.randint(1, 6)
        num_right = next((n for n in range(9) if generator.random() > rate), 9)
        draft = Draft.chain([1 if depth < num_right else 0 for depth in range(window)], "m")
        for node in judge_chain(draft, window, [1] * (min(num_right, window) + 1)):
            usual[node.depth].record(node.is_accepted)
    assert [rate_of_depth.estimate(0.75) for rate_of_depth in usual[:4]] == pytest.approx([rate] * 4, abs=0.12)


def test_a_sequence_starts_from_what_is_usual_and_soon_has_a_rate_of_its_own():
    own, other = Rate.of_sequence(), Rate.of_sequence()
    assert own.estimate(0.9) == 0.9
    for _ in range(12):
        own.record(False)
    assert own.estimate(0.9) < 0.4
    assert other.estimate(0.9) == 0.9


def test_a_plan_ends_drafts_by_calibrated_survival():
    plan = Plan("m", 4, deepen_above=(0.5, 0.9), calibration=Calibration(1.0, 1.0))
    assert plan.probability(0.5) > 0.7
    assert plan.is_worth_deepening(1, 0.6)
    assert not plan.is_worth_deepening(2, 0.6)
    assert plan.is_worth_deepening(3, 0.0)
