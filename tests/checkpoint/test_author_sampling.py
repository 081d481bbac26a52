"""The sampling parameters that a model's author recommends."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.checkpoint import CATALOG, author_sampling
from paceline.sampling import RANGES


def test_the_files_parameters_count_and_otherwise_the_catalogs() -> None:
    catalog = {"temperature": 0.7}
    assert author_sampling({}, catalog) == catalog
    metadata = {"general.sampling.temp": 0.25, "general.sampling.top_k": 20, "general.sampling.penalty_repeat": 1.05}
    assert author_sampling(metadata, catalog) == {"temperature": 0.25, "top_k": 20, "repetition_penalty": 1.05}


@pytest.mark.parametrize("value", ["0.5", True, None, [0.5]])
def test_values_that_are_no_numbers_are_skipped(value: object) -> None:
    assert author_sampling({"general.sampling.temp": value, "general.sampling.top_p": 0.5}, {}) == {"top_p": 0.5}


def test_numbers_of_numpy_are_numbers() -> None:
    assert author_sampling({"general.sampling.temp": np.float32(0.5)}, {}) == {"temperature": 0.5}


def test_the_catalogs_parameters_are_in_range() -> None:
    for entry in CATALOG.values():
        assert set(entry.sampling) <= {"temperature", "top_p", "top_k", "min_p"}
        assert all(value in RANGES[name] for name, value in entry.sampling.items())
