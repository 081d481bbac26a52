"""The sampling rule, as the reference backend defines it, and a statistical test of counts against a distribution."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from paceline.backends.reference import sampler as reference
from paceline.core import SamplingParams


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, ...]:
    """Returns the four words that Philox gives for one counter."""
    return tuple(int(word[0]) for word in reference.philox(counter, key))


def noise(seed: int, choice_index: int, position: int, vocab_size: int) -> np.ndarray:
    """Returns the exponential noise of each token, float64 [vocab_size]."""
    return reference.noise(seed, choice_index, position, vocab_size)


def processed_logits(
    row: np.ndarray, params: SamplingParams, prompt: list[int], output: list[int], banned: tuple[int, ...] = ()
) -> np.ndarray:
    """Returns the logits after penalties, bias and bans, float64 [vocab_size]."""
    logits = reference.processed_logits(row, params, prompt, Counter(output))
    if len(output) < params.min_tokens:
        logits[list(banned)] = -math.inf
    return logits


def distribution(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Returns the distribution after temperature, top-k, top-p and min-p: float64 [vocab_size] that sums to 1."""
    return reference.distribution(logits, params)


def chi_square_p_value(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """Returns the probability of counts that are at least this far from `probabilities`.

    It uses Wilson and Hilferty's normal approximation.
    """
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    if possible.sum() == 1:
        return 1.0
    expected = counts.sum() * probabilities[possible]
    statistic = float((((counts[possible] - expected) ** 2) / expected).sum())
    freedom = int(possible.sum()) - 1
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return 0.5 * math.erfc(z / math.sqrt(2))
