"""Short forms of the sampling interface for tests."""

from __future__ import annotations

import numpy as np

from paceline.backends.native.sampler import RowSampler, SampledRows, sample_rows
from paceline.core import SamplingParams


def make_sampler(params: SamplingParams, vocab_size: int, *, prompt=(), seed=1234, choice_index=0, banned=()):
    return RowSampler(
        params,
        vocab_size=vocab_size,
        prompt_token_ids=list(prompt),
        seed=seed,
        choice_index=choice_index,
        banned_token_ids=banned,
    )


def sample(
    logits: np.ndarray,
    samplers: list[RowSampler],
    positions: list[int],
    *,
    extra=None,
    num_logprobs=None,
    threads=None,
    isa=None,
) -> SampledRows:
    """Row i with sampler i."""
    count = len(samplers)
    return sample_rows(
        logits,
        list(range(count)),
        samplers,
        positions,
        extra or [[]] * count,
        num_logprobs=num_logprobs or [None] * count,
        threads=threads,
        instruction_set=isa,
    )


def random_logits(num_rows: int, vocab_size: int, *, seed: int = 0, spread: float = 2.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, spread, (num_rows, vocab_size)).astype(np.float32)
