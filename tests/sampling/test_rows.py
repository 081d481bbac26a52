"""Tests rows of real sizes: instruction sets, batches, ties, limits of truncation, log-probabilities, hashes, bad
logits."""

from __future__ import annotations

import numpy as np
import pytest

from paceline import _native
from paceline.backends.native.model import ThreadPool
from paceline.backends.native.sampler import NativeSampler
from paceline.core import SamplingParams
from tests.sampling.sampling_calls import make_sampler, random_logits, sample

VOCAB_SIZE = 50_021
MIXED = [
    SamplingParams(temperature=0.0),
    SamplingParams(),
    SamplingParams(temperature=0.8, top_p=0.95),
    SamplingParams(temperature=0.7, top_p=0.9999),
    SamplingParams(top_k=40),
    SamplingParams(top_k=30_000, top_p=0.5),
    SamplingParams(min_p=0.05),
    SamplingParams(temperature=0.0, frequency_penalty=0.5, logit_bias={7: 3.0}),
    SamplingParams(temperature=1.3, repetition_penalty=1.3, top_p=0.7),
]


def _mixed_rows(num_rows):
    samplers = [make_sampler(MIXED[row % len(MIXED)], prompt=[1, 2, 3], seed=row) for row in range(num_rows)]
    return samplers, [5 + row for row in range(num_rows)], [[4] * (row % 3) for row in range(num_rows)]


def test_all_instruction_sets_give_equal_tokens_and_equal_bits():
    samplers, positions, extra = _mixed_rows(18)
    logits = random_logits(18, VOCAB_SIZE)
    results = [
        sample(logits, samplers, positions, extra=extra, num_logprobs=[3] * 18, isa=isa)
        for isa in _native.instruction_sets()
    ]
    assert len(results) >= 1
    assert all(result == results[0] for result in results)


def test_a_row_does_not_depend_on_its_batch():
    samplers, positions, extra = _mixed_rows(27)
    logits = random_logits(27, VOCAB_SIZE, seed=1)
    together = sample(logits, samplers, positions, extra=extra, num_logprobs=[2] * 27)
    for row in range(27):
        alone = sample(logits[row : row + 1], [samplers[row]], [positions[row]], extra=[extra[row]], num_logprobs=[2])
        assert (alone.token_ids[0], alone.logprobs[0]) == (together.token_ids[row], together.logprobs[row])


@pytest.mark.parametrize("num_rows", [1, 2, 3, 18])
def test_threads_do_not_change_a_bit(num_rows):
    """Threads divide the rows among them, or pieces of rows if there are fewer rows than threads."""
    samplers, positions, extra = _mixed_rows(18)
    logits = random_logits(18, VOCAB_SIZE, seed=4, spread=3.0)
    for first in range(0, 18, num_rows):
        rows = slice(first, first + num_rows)
        calls = (logits[rows], samplers[rows], positions[rows])
        options = {"extra": extra[rows], "num_logprobs": [2] * num_rows}
        alone = sample(*calls, **options)
        assert all(sample(*calls, **options, threads=ThreadPool(count)) == alone for count in (1, 2, 3, 20))


def test_asking_for_logprobs_does_not_change_the_tokens():
    samplers, positions, extra = _mixed_rows(18)
    logits = random_logits(18, VOCAB_SIZE, seed=2)
    without = sample(logits, samplers, positions, extra=extra)
    assert without.logprobs == [None] * 18
    assert without.token_ids == sample(logits, samplers, positions, extra=extra, num_logprobs=[5] * 18).token_ids


def test_greedy_is_argmax_with_ties_to_the_lower_id():
    logits = random_logits(6, VOCAB_SIZE, seed=3)
    logits[1, [900, 40_000]] = 50.0
    logits[2, [0, VOCAB_SIZE - 1]] = 50.0
    logits[3, VOCAB_SIZE - 1] = 50.0
    logits[4] = 0.0
    logits[5] = -7.0
    sampler = make_sampler(SamplingParams(temperature=0.0))
    assert sample(logits, [sampler] * 6, [0] * 6).token_ids == [int(row.argmax()) for row in logits]


def _support(params, logits, *, num_draws=4000):
    sampler = make_sampler(params)
    repeated = np.repeat(logits, num_draws, axis=0)
    return sorted(set(sample(repeated, [sampler] * num_draws, list(range(num_draws))).token_ids))


def _logits_of(*probabilities):
    return np.log(np.array([probabilities], dtype=np.float64)).astype(np.float32)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(top_p=0.45), [1, 2]),  # the token that reaches the total is kept
        (SamplingParams(top_p=0.4), [1, 2]),
        (SamplingParams(top_p=0.3), [2]),
        (SamplingParams(top_p=0.0), [2]),
        (SamplingParams(top_k=2), [1, 2]),
        (SamplingParams(top_k=1), [2]),
        (SamplingParams(top_k=100), [0, 1, 2, 3]),
        (SamplingParams(min_p=0.55), [1, 2]),
        (SamplingParams(min_p=1.0), [2]),
        (SamplingParams(top_k=2, top_p=0.55), [2]),  # the total is that of the two kept tokens
        (SamplingParams(temperature=1e-30), [2]),
    ],
)
def test_truncation_keeps_exactly_the_defined_set(params, expected):
    assert _support(params, _logits_of(0.15, 0.25, 0.39, 0.21)) == expected


def test_tied_tokens_are_truncated_by_id():
    logits = np.zeros((1, 200), dtype=np.float32)
    assert _support(SamplingParams(top_k=3), logits) == [0, 1, 2]
    assert _support(SamplingParams(top_p=0.02), logits) == [0, 1, 2, 3]
    assert _support(SamplingParams(top_k=100, top_p=0.05), logits) == [0, 1, 2, 3, 4]
    assert len(_support(SamplingParams(min_p=1.0), logits)) == 200


@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 4.0])
@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.95, 0.999999, 1 - 1e-12])
def test_a_nucleus_of_any_size_is_found(top_p, spread):
    logits = random_logits(4, VOCAB_SIZE, seed=9, spread=spread)
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    sampler = make_sampler(SamplingParams(top_p=top_p))
    for row, drawn in enumerate(sample(logits, [sampler] * 4, [1, 2, 3, 4]).token_ids):
        mass_before = weights[row][weights[row] > weights[row, drawn]].sum() / weights[row].sum()
        assert mass_before < top_p


def test_log_probabilities_are_those_of_the_raw_distribution():
    logits = random_logits(5, VOCAB_SIZE, seed=10)
    params = SamplingParams(temperature=0.5, top_k=3, logit_bias={1: 50.0})
    result = sample(logits, [make_sampler(params)] * 5, [9] * 5, num_logprobs=[0, 1, 4, 20, None])
    wide = logits.astype(np.float64)
    expected = wide - wide.max(axis=1, keepdims=True)
    expected -= np.log(np.exp(expected).sum(axis=1, keepdims=True))
    assert result.logprobs[4] is None
    for row, count in enumerate([0, 1, 4, 20]):
        entry = result.logprobs[row]
        assert entry.token_id == result.token_ids[row]
        assert entry.logprob == pytest.approx(expected[row, entry.token_id], abs=2e-6)
        order = np.argsort(-expected[row], kind="stable")[:count]
        assert [token for token, _ in entry.top] == order.tolist()
        assert [logprob for _, logprob in entry.top] == pytest.approx(expected[row, order].tolist(), abs=2e-6)


def test_a_hash_tells_rows_apart_by_every_bit():
    logits = random_logits(3, VOCAB_SIZE, seed=11)
    logits[1] = logits[0]
    logits[2] = logits[0]
    logits.view(np.uint32)[2, 12_345] ^= 1
    first, same, other = NativeSampler().hash_rows(logits, [0, 1, 2])
    assert first == same != other
    assert len(first) == 16
    assert int(first, 16) >= 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("value", "index"), [(np.nan, 0), (np.nan, 99), (np.inf, 50)])
def test_broken_logits_are_an_error(value, index, temperature):
    logits = random_logits(1, 100)
    logits[0, index] = value
    sound = random_logits(1, 100, seed=1)
    sampler = make_sampler(SamplingParams(temperature=temperature))
    result = sample(np.concatenate([sound, logits, sound]), [sampler] * 3, [0] * 3, num_logprobs=[0] * 3)
    assert result.token_ids[1] is result.logprobs[1] is None
    assert list(result.failures) == [1]
    assert "logits" in result.failures[1]
    assert result.token_ids[::2] == sample(sound, [sampler], [0]).token_ids * 2


def test_a_row_without_a_token_left_is_an_error():
    result = sample(np.full((1, 4), -np.inf, dtype=np.float32), [make_sampler(SamplingParams())], [0])
    assert result.token_ids == [None]
    assert "no token" in result.failures[0]


def test_impossible_tokens_are_never_drawn():
    logits = np.full((1, 300), -np.inf, dtype=np.float32)
    logits[0, [17, 205]] = 1.0, 2.0
    assert _support(SamplingParams(), logits) == [17, 205]
    assert _support(SamplingParams(top_k=10, top_p=0.99), logits) == [17, 205]
