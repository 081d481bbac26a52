"""Activations are rounded to planes of int8 by the written rule, equally on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from paceline import _native
from tests.native.gemm_contract import OUTLIER_RATIOS, round_activations

kernels = _native.kernels
Rounding = _native.ActivationRounding
LARGEST_INTEGERS = {Rounding.EIGHT_BITS: 127, Rounding.EIGHT_BITS_OF_NORMED: 127, Rounding.FIFTEEN_BITS: 16256}
INSTRUCTION_SETS = tuple(_native.instruction_sets())


def hard_rows(inputs: int) -> np.ndarray:
    """Returns difficult rows: values halfway between integers, zeros, subnormals, values near the float limits, and one
    spike; and ordinary ones."""
    rng = np.random.default_rng(inputs)
    rows = rng.standard_normal((9, inputs)).astype(np.float32)
    rows[1] = (np.arange(inputs) % 255 - 127) / 2
    rows[1, 0] = 16256.0
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
@pytest.mark.parametrize("rounding", LARGEST_INTEGERS)
def test_rounding_is_the_written_rule(instruction_set: str, inputs: int, rounding: Rounding) -> None:
    rows = hard_rows(inputs)
    planes, scales, sums, totals = kernels.quantize(instruction_set, rows, rounding)
    expected = round_activations(rows, rounding)
    blocks = len(expected.scales[0])
    np.testing.assert_array_equal(scales.view(np.uint32), expected.scales.view(np.uint32))
    assert set(np.abs(expected.integers[8])) == {LARGEST_INTEGERS[rounding]}
    for plane, values in enumerate((expected.low, expected.high)):
        padded = np.zeros((len(rows), 256 * blocks), np.int64)
        padded[:, :inputs] = values
        padded = padded.reshape(len(rows), blocks, 256)
        np.testing.assert_array_equal(planes[:, :, plane], padded)
        np.testing.assert_array_equal(sums[:, :, plane], padded.reshape(len(rows), blocks, 16, 16).sum(axis=3))
        np.testing.assert_array_equal(totals[:, :, plane], padded.reshape(len(rows), blocks, 8, 32).sum(axis=3))
    np.testing.assert_array_equal(totals[:, :, 2], totals[:, :, 0] + 128 * totals[:, :, 1])


@pytest.mark.parametrize("rounding", LARGEST_INTEGERS)
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_block_that_is_not_finite_has_the_scale_nan_and_no_integers(
    instruction_set: str, rounding: Rounding, value: float
) -> None:
    rows = np.random.default_rng(2).standard_normal((3, 608)).astype(np.float32)
    rows[1, 300] = value
    rows[2, 607] = value
    planes, scales, sums, totals = kernels.quantize(instruction_set, rows, rounding)
    expected = round_activations(rows, rounding)
    np.testing.assert_array_equal(np.isnan(scales), [[False] * 3, [False, True, False], [False, False, True]])
    np.testing.assert_array_equal(scales, expected.scales)
    for block in [(1, 1), (2, 2)]:
        assert not planes[block].any()
        assert not sums[block].any()
        assert not totals[block].any()


@pytest.mark.parametrize(("rounding", "ratio"), OUTLIER_RATIOS.items())
def test_an_outlier_does_not_coarsen_the_rest_of_its_block(rounding: Rounding, ratio: int) -> None:
    rows = np.random.default_rng(3).standard_normal((2, 512)).astype(np.float32)
    largest = np.abs(rows[0, :256]).max()
    rows[1, 7] = 1000.0
    planes, scales, _, _ = kernels.quantize("scalar", rows, rounding)
    assert scales[0, 0] == largest / np.float32(127)
    assert scales[1, 0] == pytest.approx(ratio * np.abs(rows[1, :256]).mean() / 127, rel=1e-5)
    assert scales[1, 0] < 0.3 * 1000 / 127
    assert not planes[0, :, 1].any()
    assert planes[1, 0, 1].any()
    assert not planes[1, 1, 1].any()
    outlier = int(planes[1, 0, 0, 7]) + 128 * int(planes[1, 0, 1, 7])
    assert outlier * scales[1, 0] == pytest.approx(1000.0, abs=float(scales[1, 0]))


@pytest.mark.parametrize("rounding", LARGEST_INTEGERS)
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_rounding_is_close(instruction_set: str, rounding: Rounding) -> None:
    rows = np.random.default_rng(1).standard_normal((4, 640)).astype(np.float32)
    rows[2, 70] = 80.0
    planes, scales, _, _ = kernels.quantize(instruction_set, rows, rounding)
    values = (planes[:, :, 0] + 128 * planes[:, :, 1].astype(np.int64)).reshape(4, -1)[:, :640]
    steps = scales.repeat(256, axis=1)[:, :640]
    assert (np.abs(values * steps - rows) <= 0.501 * steps).all()


def test_rows_of_odd_length_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 40 values, but they must be a multiple of 32"):
        kernels.quantize("scalar", np.zeros((1, 40), np.float32))
