"""Answers to generated schemas are valid, with a real model."""

from __future__ import annotations

from pathlib import Path

from laboratory.schemas import generate_schema
from prove_constraints import is_valid, prove

NUM_SCHEMAS = 12


def test_a_schema_depends_on_its_seed_alone() -> None:
    assert generate_schema(5) == generate_schema(5) != generate_schema(6)


def test_validity_includes_patterns_and_formats() -> None:
    schema = {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}}
    assert is_valid('{"day": "2024-02-29"}', schema)
    assert not is_valid('{"day": "2023-02-29"}', schema)
    assert not is_valid('{"day": ', schema)


def test_answers_of_a_real_model_are_valid_and_the_same_with_drafters(smollm2_path: Path) -> None:
    outcome = prove(str(smollm2_path), range(NUM_SCHEMAS))
    assert outcome.refused.total() <= 1
    assert outcome.num_answers == 2 * (NUM_SCHEMAS - outcome.refused.total())
    assert outcome.num_ended >= 0.9 * outcome.num_answers
    assert (outcome.invalid, outcome.different) == ([], [])
    assert outcome.num_forced > 0
