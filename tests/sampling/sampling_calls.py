"""Short forms of the sampling interface, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat

import numpy as np

from paceline import _native
from paceline.backends.native.sampler import NativeSampler
from paceline.core import SamplingParams, TokenLogprob
from paceline.sampling.sampler import RowSampler, SampleQuery


@dataclass(frozen=True)
class Results:
    """The sampled tokens and log-probabilities in lists, and the failures by row."""

    token_ids: list[int | None]
    logprobs: list[TokenLogprob | None]
    failures: dict[int, str]


def make_sampler(params: SamplingParams, *, prompt=(), seed=1234, choice_index=0, banned=()) -> RowSampler:
    return NativeSampler().begin(
        params, prompt_token_ids=list(prompt), seed=seed, choice_index=choice_index, banned_token_ids=banned
    )


def sample(
    logits: np.ndarray,
    samplers: list[RowSampler],
    positions: list[int],
    *,
    extra=None,
    num_logprobs=None,
    threads: _native.ThreadPool | None = None,
    isa: str | None = None,
) -> Results:
    """Samples row i of the logits with sampler i at position i."""
    count = len(samplers)
    extra = extra or [()] * count
    num_logprobs = num_logprobs or [None] * count
    queries = list(map(SampleQuery, range(count), samplers, positions, extra, num_logprobs))
    return results(NativeSampler(threads, isa).sample(logits, queries))


def sample_positions(logits: np.ndarray, sampler: RowSampler, positions: range) -> list[int]:
    """Returns the tokens of the first row at each of these positions. It is fast enough for millions of positions."""
    queries = list(zip(repeat(0), repeat(sampler), positions, repeat(()), repeat(None), repeat(None)))
    return [token_id for token_id, _, _ in _native.sample_rows(logits, queries, None, None, None)]


def results(sampled) -> Results:
    failures = {row: one.failure for row, one in enumerate(sampled) if one.failure is not None}
    return Results([one.token_id for one in sampled], [one.logprob for one in sampled], failures)


def random_logits(num_rows: int, vocab_size: int, *, seed: int = 0, spread: float = 2.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, spread, (num_rows, vocab_size)).astype(np.float32)
