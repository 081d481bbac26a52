"""Rounding of activations to int8: the written rule, the same on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from paceline import _native
from tests.native.gemm_contract import round_activations

kernels = _native.kernels
INSTRUCTION_SETS = tuple(_native.instruction_sets())


def hard_rows(inputs: int) -> np.ndarray:
    """Ordinary rows, halves between two integers, zeros, subnormals, values near the float limits, one spike."""
    rng = np.random.default_rng(inputs)
    rows = rng.standard_normal((9, inputs)).astype(np.float32)
    rows[1] = (np.arange(inputs) % 255 - 127) / 2
    rows[1, 0] = 127.0
    rows[2] = 0.0
    rows[3] *= np.float32(1e-42)
    rows[4] *= np.float32(1e-36)
    rows[5] *= np.float32(2e37)
    rows[6] = 0.0
    rows[6, inputs - 1] = -1.0
    rows[7, : min(inputs, 256)] = 0.0
    rows[8] = np.where(np.arange(inputs) % 2, 5.0, -5.0)
    return rows


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("inputs", [32, 96, 256, 576, 896, 1536])
@pytest.mark.parametrize("scale_inputs", [32, 256])
def test_rounding_is_the_written_rule(instruction_set: str, inputs: int, scale_inputs: int) -> None:
    rows = hard_rows(inputs)
    values, scales, sums = kernels.quantize(instruction_set, rows, scale_inputs)
    expected_values, expected_scales = round_activations(rows, scale_inputs)
    np.testing.assert_array_equal(values, expected_values)
    np.testing.assert_array_equal(scales.view(np.uint32), expected_scales.view(np.uint32))
    np.testing.assert_array_equal(sums, values.astype(np.int64).reshape(len(rows), -1, 16).sum(axis=2))
    assert np.abs(values.astype(np.int64)).max() == 127


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("scale_inputs", [32, 256])
def test_rounding_is_close(instruction_set: str, scale_inputs: int) -> None:
    rows = np.random.default_rng(1).standard_normal((4, 640)).astype(np.float32)
    values, scales, _ = kernels.quantize(instruction_set, rows, scale_inputs)
    steps = scales.repeat(scale_inputs, axis=1)[:, :640]
    assert (np.abs(values * steps - rows) <= 0.5001 * steps).all()


def test_rows_of_odd_length_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 40 values, but they must be a multiple of 32"):
        kernels.quantize("scalar", np.zeros((1, 40), np.float32), 32)
