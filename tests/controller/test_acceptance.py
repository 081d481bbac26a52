"""What the controller learns from drafts: judgements, calibration and expectations, with censored evidence."""

from __future__ import annotations

import random

import pytest

from paceline.controller.acceptance import (
    ConfidenceModel,
    DecayedRatio,
    Judgement,
    calibrated_survivals,
    judge,
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
        confidence = generator.uniform(0.05, 0.95)
        is_accepted = generator.random() < truth.probability(confidence)
        predicted = model.calibration(0.0).probability(confidence)
        model.learn(Judgement(0, confidence, is_accepted), 0.0)
        if number > 4000:
            errors.append(abs(predicted - truth.probability(confidence)))
    assert sum(errors) / len(errors) < 0.06


def test_a_sequence_learns_faster_than_its_drafter():
    model, own = ConfidenceModel(), 0.0
    for _ in range(6):
        own = model.learn(Judgement(0, 0.9, False), own)
    assert model.calibration(own).probability(0.9) < 0.5
    assert model.calibration(0.0).probability(0.9) > model.calibration(own).probability(0.9)


def test_a_plan_ends_drafts_by_calibrated_survival():
    plan = Plan("m", 4, deepen_above=(0.5, 0.9), calibration=Calibration(1.0, 1.0))
    assert plan.probability(0.5) > 0.7
    assert plan.is_worth_deepening(1, 0.6)
    assert not plan.is_worth_deepening(2, 0.6)
    assert plan.is_worth_deepening(3, 0.0)


def test_a_ratio_starts_from_its_prior_and_soon_follows_what_is_measured():
    own, other = DecayedRatio(), DecayedRatio()
    assert own.estimate(0.9) == 0.9
    for _ in range(12):
        own.record(False)
    assert own.estimate(0.9) < 0.4
    assert other.estimate(0.9) == 0.9


def test_a_ratio_forgets():
    ratio = DecayedRatio()
    for _ in range(200):
        ratio.record(6.0, 2.0)
    assert ratio.above / ratio.below == pytest.approx(3.0)
    for _ in range(200):
        ratio.record(1.0, 2.0)
    assert ratio.above / ratio.below == pytest.approx(0.5, abs=0.01)
