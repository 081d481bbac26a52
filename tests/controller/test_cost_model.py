"""Tests the tables of the cost model, and how measurements change them."""

from __future__ import annotations

import random

import msgspec
import pytest

from paceline.controller.cost_model import CostModel, DrafterCosts, RowTable, StepCosts

TARGET = RowTable((1, 4, 8, 9, 16), (1.0, 1.1, 1.5, 2.5, 3.2), 1e-4, 1e-5)
DRAFT = DrafterCosts(RowTable((1, 8), (0.2, 0.34)), 0.01)
COSTS = StepCosts(TARGET, {"draft-model": DRAFT})


def test_a_table_interpolates_and_goes_on():
    assert [TARGET.at(rows) for rows in (1, 4, 6, 9, 16)] == pytest.approx([1.0, 1.1, 1.3, 2.5, 3.2])
    assert TARGET.at(23) == pytest.approx(3.9)
    assert RowTable((3,), (2.0,)).at(7) == 2.0


def test_times_never_fall_with_the_rows():
    noisy = CostModel(StepCosts(RowTable((1, 2, 4, 8), (1.0, 1.4, 1.2, 1.1))))
    times = noisy.steps_s(1, 30, 0.0)
    assert times == sorted(times)
    assert times[0] == 1.0


def test_context_is_paid_by_rows():
    model = CostModel(COSTS)
    assert model.step_s(1, 1000.0) == pytest.approx(1.0 + 0.1 + 0.01)
    assert model.step_s(4, 1000.0) == pytest.approx(1.1 + 0.1 + 0.04)
    assert model.steps_s(4, 2, 0.0) == pytest.approx([1.1, 1.2, 1.3])


def test_a_drafter_is_priced_by_sequences_and_by_what_it_missed():
    model = CostModel(COSTS)
    assert model.depth_s("draft-model", 8, 0.0) == pytest.approx(0.34)
    assert model.catch_up_s("draft-model", 30) == pytest.approx(0.3)
    assert (model.depth_s("ngram", 8, 0.0), model.catch_up_s("ngram", 30)) == (0.0, 0.0)
    assert model.has_price("draft-model")
    assert not model.has_price("ngram")


def test_a_slowdown_of_everything_changes_no_ratio():
    model = CostModel(COSTS)
    before = [model.step_s(rows, 0.0) for rows in (1, 4, 9)] + [model.depth_s("draft-model", 1, 0.0)]
    for _ in range(200):
        model.refine_step(1, 0.0, 2.0 * 1.0)
        model.refine_drafter("draft-model", 0.2, 2.0 * 0.2)
    after = [model.step_s(rows, 0.0) for rows in (1, 4, 9)] + [model.depth_s("draft-model", 1, 0.0)]
    assert model.common_factor == pytest.approx(2.0, rel=0.1)
    ratios = [right / left for left, right in zip(before, after, strict=True)]
    assert max(ratios) / min(ratios) < 1.06


def test_one_outlier_changes_little():
    model = CostModel(COSTS)
    model.refine_step(4, 0.0, 100.0)
    assert model.step_s(4, 0.0) / 1.1 == pytest.approx(1.0, abs=0.01)


def test_a_wrong_entry_is_corrected_against_the_others():
    model, generator = CostModel(COSTS), random.Random(1)
    for _ in range(1500):
        noise = generator.uniform(0.9, 1.1)
        model.refine_step(1, 0.0, 1.0 * noise)
        model.refine_step(8, 0.0, 2.1 * noise)
    assert model.step_s(8, 0.0) / model.step_s(1, 0.0) == pytest.approx(2.1, rel=0.1)


def test_costs_survive_json():
    assert msgspec.json.decode(msgspec.json.encode(COSTS), type=StepCosts) == COSTS
