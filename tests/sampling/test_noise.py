"""Compares Philox with published vectors, and the exponential noise with the C library's logarithm."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline import _native
from tests.sampling import oracle

# From Random123's kat_vectors, for philox4x32 with 10 rounds: counter, key, result.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, key, expected):
    assert tuple(_native.philox(counter, key)) == expected
    assert oracle.philox(counter, key) == expected


@pytest.mark.parametrize(
    "bits", [0, 1, 2, 255, 1 << 16, 1 << 31, (1 << 31) - 1, 1258000000, (1 << 32) - 2, (1 << 32) - 1]
)
def test_exponential_noise_is_the_logarithm(bits):
    uniform = (bits + 0.5) / 2.0**32
    assert _native.exponential_noise(bits) == pytest.approx(-math.log1p(-uniform), rel=4e-15)
    assert _native.exponential_noise(bits) >= uniform


def test_exponential_noise_never_falls_as_its_bits_rise():
    around = [int(bits) for bits in np.random.default_rng(0).integers(1, 1 << 32, 2000)]
    assert all(_native.exponential_noise(bits - 1) < _native.exponential_noise(bits) for bits in around)
