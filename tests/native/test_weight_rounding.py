"""Rounding weights to Q4_0 gives equal bits on every instruction set, and nearly the least error that numpy finds."""

from __future__ import annotations

import numpy as np
import pytest

from paceline import _native
from paceline.checkpoint.ggml_type import GgmlType

KERNELS = _native.kernels
BLOCK = 32


def quantize(rows):
    """Checks that all instruction sets give the same Q4_0 bytes, and returns them."""
    results = [KERNELS.quantize_q4_0(name, rows) for name in _native.instruction_sets()]
    assert all((result == results[0]).all() for result in results)
    return results[0]


def dequantize(blocks, inputs):
    return np.stack([KERNELS.dequantize_row(int(GgmlType.Q4_0), row, inputs) for row in blocks])


def errors(weights, rounded):
    """Returns the squared error of each block of 32 weights."""
    difference = rounded.astype(np.float64).reshape(-1, BLOCK) - weights.reshape(-1, BLOCK)
    return (difference**2).sum(axis=1)


def simple_errors(weights):
    """Returns the errors of the usual rule, by which the weight of largest magnitude becomes -8."""
    blocks = weights.astype(np.float64).reshape(-1, BLOCK)
    extremes = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    scales = (extremes / -8).astype(np.float16).astype(np.float64)
    return errors(weights, np.clip(np.round(blocks / scales), -8, 7) * scales)


def least_errors(weights):
    """Returns for each block the smallest error among 300 scales."""
    blocks = weights.astype(np.float64).reshape(-1, BLOCK)
    extremes = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    least = np.full(len(blocks), np.inf)
    for divisor in np.linspace(-11.0, -5.0, 300):
        scales = extremes / divisor
        least = np.minimum(least, errors(weights, np.clip(np.round(blocks / scales), -8, 7) * scales))
    return least


@pytest.mark.parametrize("shape", [(1, 32), (15, 64), (16, 256), (37, 288), (48, 896)])
@pytest.mark.parametrize("distribution", ["normal", "laplace", "uniform"])
def test_the_error_is_close_to_the_least(shape, distribution):
    weights = getattr(np.random.default_rng(3), distribution)(size=shape).astype(np.float32) * np.float32(0.02)
    found = errors(weights, dequantize(quantize(weights), shape[1]))
    assert found.sum() <= 1.03 * least_errors(weights).sum()
    assert (found <= 1.5 * simple_errors(weights)).all()


def test_it_beats_the_usual_rule():
    weights = np.random.default_rng(4).normal(size=(64, 896)).astype(np.float32)
    assert errors(weights, dequantize(quantize(weights), 896)).sum() < 0.93 * simple_errors(weights).sum()


def test_weights_that_are_four_bits_already_keep_their_values():
    rng = np.random.default_rng(5)
    integers = rng.integers(-8, 8, size=(40, 128)).astype(np.float32)
    integers[:, ::BLOCK] = -8
    scales = rng.uniform(0.001, 3.0, (40, 4)).astype(np.float16).astype(np.float32)
    weights = integers * np.repeat(scales, BLOCK, axis=1)
    np.testing.assert_array_equal(dequantize(quantize(weights), 128), weights)


@pytest.mark.parametrize("value", [0.0, 1e-38, -1e-31, 1e-12])
def test_weights_too_small_for_a_half_become_zero(value):
    weights = np.full((2, 64), value, np.float32)
    weights[1, 32:] = 1.0
    rounded = dequantize(quantize(weights), 64)
    assert (rounded[0] == 0).all()
    assert (rounded[1, :32] == 0).all()
    np.testing.assert_allclose(rounded[1, 32:], 1.0, rtol=1e-3)


def test_a_row_does_not_depend_on_its_neighbours():
    weights = np.random.default_rng(6).normal(size=(20, 96)).astype(np.float32)
    together = quantize(weights)
    for row in range(20):
        assert (quantize(weights[row : row + 1]) == together[row]).all()
