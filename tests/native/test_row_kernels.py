"""Row kernels give equal bits on every instruction set, and agree with numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from paceline import _native

KERNELS = _native.row_kernels
SIZES = [1, 2, 15, 16, 17, 64, 576, 1001]


def values(size, seed=0, scale=3.0):
    return (np.random.default_rng(seed).standard_normal(size) * scale).astype(np.float32)


def on_every_instruction_set(call):
    """Checks that all instruction sets give the same bits, and returns the result."""
    results = [np.atleast_1d(np.asarray(call(name))) for name in _native.instruction_sets()]
    for result in results[1:]:
        assert (result.view(np.uint8) == results[0].view(np.uint8)).all()
    return results[0]


@pytest.mark.parametrize("size", SIZES)
def test_rms_norm(size):
    source, weight = values(size), values(size, 1)
    result = on_every_instruction_set(lambda isa: KERNELS.rms_norm(isa, source, weight, 1e-6))
    exact = source / np.sqrt(np.mean(source.astype(np.float64) ** 2) + 1e-6) * weight
    np.testing.assert_allclose(result, exact, rtol=2e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["silu", "gelu"])
def test_activations(size, name):
    gate, up = values(size, 2, 8.0), values(size, 3)
    result = on_every_instruction_set(lambda isa: KERNELS.activate(isa, name, gate, up))
    x = gate.astype(np.float64)
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    exact = x / (1 + np.exp(-x)) if name == "silu" else 0.5 * x * (1 + np.tanh(inner))
    np.testing.assert_allclose(result, exact * up, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("head_dim", [32, 64, 80, 128, 256])
@pytest.mark.parametrize("style", ["normal", "neox"])
def test_rope_rotates_pairs(head_dim, style):
    head, angles = values(head_dim), values(head_dim // 2, 4).astype(np.float64)
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    result = on_every_instruction_set(lambda isa: KERNELS.rope(isa, style, head, cosine, sine))
    half = head_dim // 2
    first, second = (np.arange(half), np.arange(half) + half)
    if style == "normal":
        first, second = 2 * np.arange(half), 2 * np.arange(half) + 1
    turned = (head[first] + 1j * head[second].astype(np.float64)) * np.exp(1j * angles)
    np.testing.assert_allclose(result[first], turned.real, atol=2e-6)
    np.testing.assert_allclose(result[second], turned.imag, atol=2e-6)


@pytest.mark.parametrize("size", SIZES)
def test_sum_of_exponentials(size):
    row = values(size, 5, 20.0)
    highest = float(row.max())
    total = on_every_instruction_set(lambda isa: np.float32(KERNELS.sum_exponentials(isa, row, highest)))
    exact = np.exp((row - np.float32(highest)).astype(np.float64))
    np.testing.assert_allclose(total, [exact.sum()], rtol=1e-6)


@pytest.mark.parametrize(("value", "expected"), [(0.0, 1.0), (-87.0, np.exp(-87.0)), (-0.3, np.exp(-0.3))])
def test_an_exponential(value, expected):
    row = np.array([value], np.float32)
    result = on_every_instruction_set(lambda isa: np.float32(KERNELS.sum_exponentials(isa, row, 0.0)))
    assert result[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("value", [-1e30, -np.inf, -88.0, -200.0])
def test_an_exponential_too_small_for_a_float_is_zero(value):
    row = np.array([value], np.float32)
    assert on_every_instruction_set(lambda isa: np.float32(KERNELS.sum_exponentials(isa, row, 0.0)))[0] == 0
