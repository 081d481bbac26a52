"""Compares rotary frequencies under each kind of scaling with values computed from the published definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.architectures.rope import RopeScaling, RopeScalingKind, make_rope_config
from paceline.core import RopeStyle
from tests.support.tiny_gguf import RopeScaling as TinyRopeScaling
from tests.support.tiny_gguf import llama3_frequency_factors

HEAD_DIM, BASE = 128, 500000.0
PLAIN = BASE ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)


def _frequencies(scaling):
    config = make_rope_config(RopeStyle.NEOX, HEAD_DIM, BASE, scaling)
    return np.array(config.inverse_frequencies), config.magnitude


def test_without_scaling_frequencies_are_powers_of_the_base():
    frequencies, magnitude = _frequencies(RopeScaling())
    np.testing.assert_allclose(frequencies, PLAIN, rtol=1e-12)
    assert magnitude == 1.0


def test_linear_scaling_divides_all_frequencies():
    frequencies, magnitude = _frequencies(RopeScaling(kind=RopeScalingKind.LINEAR, factor=4.0))
    np.testing.assert_allclose(frequencies, PLAIN / 4, rtol=1e-12)
    assert magnitude == 1.0


def test_yarn_keeps_fast_frequencies_stretches_slow_ones_and_ramps_between():
    scaling = RopeScaling(kind=RopeScalingKind.YARN, factor=4.0, original_context=8192)
    frequencies, magnitude = _frequencies(scaling)
    ratio = frequencies / PLAIN
    rotations = 8192 * PLAIN / (2 * math.pi)
    assert np.all(ratio[rotations > 40] == 1.0)
    np.testing.assert_allclose(ratio[rotations < 0.9], 0.25, rtol=1e-12)
    assert np.all(np.diff(ratio) <= 0)
    assert np.count_nonzero((ratio > 0.26) & (ratio < 0.99)) > 10
    assert magnitude == pytest.approx(1 + 0.1 * math.log(4))


def test_yarn_ramp_is_linear_in_the_dimension():
    scaling = RopeScaling(kind=RopeScalingKind.YARN, factor=4.0, original_context=8192)
    first = math.floor(HEAD_DIM * math.log(8192 / (32 * 2 * math.pi)) / (2 * math.log(BASE)))
    last = math.ceil(HEAD_DIM * math.log(8192 / (2 * math.pi)) / (2 * math.log(BASE)))
    kept = 1 - (np.arange(first, last + 1) - first) / (last - first)
    ratio = (_frequencies(scaling)[0] / PLAIN)[first : last + 1]
    np.testing.assert_allclose(ratio, 0.25 * (1 - kept) + kept, rtol=1e-9)


def test_yarn_magnitude_follows_multiplier_and_file():
    yarn = {"kind": RopeScalingKind.YARN, "factor": 16.0, "original_context": 8192}
    assert _frequencies(RopeScaling(**yarn, log_multiplier=1.0))[1] == pytest.approx(1.0)
    assert _frequencies(RopeScaling(**yarn, magnitude=2.0))[1] == pytest.approx(2 * (1 + 0.1 * math.log(16)))


def test_llama3_factors_keep_fast_frequencies_and_divide_slow_ones():
    factors = llama3_frequency_factors(TinyRopeScaling("llama3", 8.0, 8192), HEAD_DIM, BASE)
    frequencies, _ = _frequencies(RopeScaling(frequency_factors=tuple(factors.tolist())))
    wavelengths = 2 * math.pi / PLAIN
    np.testing.assert_allclose(frequencies[wavelengths < 8192 / 4], PLAIN[wavelengths < 8192 / 4], rtol=1e-6)
    np.testing.assert_allclose(frequencies[wavelengths > 8192], PLAIN[wavelengths > 8192] / 8, rtol=1e-6)
