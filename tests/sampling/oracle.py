"""The sampling rule again in numpy, written from its definition: the oracle of the native one."""

from __future__ import annotations

import math

import numpy as np

from paceline.core import SamplingParams

PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
MASK_32 = (1 << 32) - 1


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 on Python integers."""
    a, b, c, d = counter
    for round_index in range(10):
        key0, key1 = ((part + round_index * weyl) & MASK_32 for part, weyl in zip(key, PHILOX_WEYL, strict=True))
        first, second = PHILOX_MULTIPLIERS[0] * a, PHILOX_MULTIPLIERS[1] * c
        a, b, c, d = (second >> 32) ^ b ^ key0, second & MASK_32, (first >> 32) ^ d ^ key1, first & MASK_32
    return a, b, c, d


def noise(seed: int, choice_index: int, position: int, vocab_size: int) -> np.ndarray:
    """Exponential noise of each token, float64 [vocab_size]."""
    key = (seed & MASK_32, seed >> 32)
    words = [
        philox((group, position & MASK_32, position >> 32, choice_index), key) for group in range(-(-vocab_size // 4))
    ]
    uniform = (np.array(words, dtype=np.float64).ravel()[:vocab_size] + 0.5) / 2.0**32
    return -np.log1p(-uniform)


def processed_logits(
    row: np.ndarray,
    params: SamplingParams,
    prompt: list[int],
    output: list[int],
    banned: tuple[int, ...] = (),
) -> np.ndarray:
    """Penalties, bias and bans, float64 [vocab_size]."""
    logits = row.astype(np.float64)
    for token in set(prompt) | set(output):
        if logits[token] > 0:
            logits[token] /= params.repetition_penalty
        else:
            logits[token] *= params.repetition_penalty
    for token in set(output):
        logits[token] -= params.frequency_penalty * output.count(token) + params.presence_penalty
    for token, bias in params.logit_bias.items():
        logits[token] += bias
    if len(output) < params.min_tokens:
        logits[list(banned)] = -math.inf
    return logits


def distribution(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Temperature, top-k, top-p and min-p, float64 [vocab_size] that sums to 1."""
    weights = np.exp((logits - logits.max()) / params.temperature)
    order = np.lexsort((np.arange(len(weights)), -weights))
    kept = order[: params.top_k]
    if params.top_p < 1.0:
        mass = np.cumsum(weights[kept]) / weights[kept].sum()
        kept = kept[: max(1, int(np.searchsorted(mass, params.top_p) + 1))]
    kept = kept[weights[kept] >= params.min_p]
    result = np.zeros_like(weights)
    result[kept] = weights[kept]
    return result / result.sum()


def chi_square_p_value(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """Probability of counts at least this far from `probabilities` (Wilson and Hilferty's normal approximation)."""
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    if possible.sum() == 1:
        return 1.0
    expected = counts.sum() * probabilities[possible]
    statistic = float((((counts[possible] - expected) ** 2) / expected).sum())
    freedom = int(possible.sum()) - 1
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return 0.5 * math.erfc(z / math.sqrt(2))
