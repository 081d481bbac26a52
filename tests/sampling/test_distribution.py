"""Compares a million draws for each parameter with an independent softmax, and single tokens with the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.backends.native.sampler import NativeSampler
from paceline.backends.reference.sampler import ReferenceSampler
from paceline.core import SamplingParams
from paceline.sampling.sampler import SampleQuery
from tests.sampling import oracle
from tests.sampling.sampling_calls import make_sampler, random_logits, sample, sample_positions

VOCAB_SIZE = 16
NUM_DRAWS = 1_000_000
PROMPT = [3, 5, 5]
OUTPUT = [1, 1, 7]
CASES = {
    "plain": SamplingParams(),
    "temperature": SamplingParams(temperature=0.6),
    "top_k": SamplingParams(top_k=5),
    "top_p": SamplingParams(top_p=0.8),
    "min_p": SamplingParams(min_p=0.1),
    "presence_penalty": SamplingParams(presence_penalty=1.2),
    "frequency_penalty": SamplingParams(frequency_penalty=0.7),
    "repetition_penalty": SamplingParams(repetition_penalty=1.5),
    "logit_bias": SamplingParams(logit_bias={2: 3.0, 9: -100.0}),
    "min_tokens": SamplingParams(min_tokens=10 * NUM_DRAWS),
    "all": SamplingParams(
        temperature=0.8, top_k=9, top_p=0.9, min_p=0.02, presence_penalty=0.5, repetition_penalty=1.1, logit_bias={4: 1}
    ),
}


@pytest.mark.parametrize("params", CASES.values(), ids=CASES.keys())
def test_a_million_draws_have_the_distribution(params):
    logits = random_logits(1, VOCAB_SIZE, seed=5, spread=1.5)
    sampler = make_sampler(params, prompt=PROMPT, banned=(0, 4))
    sampler.append(OUTPUT)
    counts = np.zeros(VOCAB_SIZE, dtype=np.int64)
    batch = 50_000
    for begin in range(0, NUM_DRAWS, batch):
        drawn = sample_positions(logits, sampler, range(begin, begin + batch))
        counts += np.bincount(drawn, minlength=VOCAB_SIZE)
    assert counts.sum() == NUM_DRAWS
    processed = oracle.processed_logits(logits[0], params, PROMPT, OUTPUT, banned=(0, 4))
    assert oracle.chi_square_p_value(counts, oracle.distribution(processed, params)) > 1e-4


@pytest.mark.parametrize("varied", ["seed", "choice_index"])
def test_draws_over_other_keys_have_the_distribution_too(varied):
    params = SamplingParams()
    num_draws = 100_000
    logits = np.repeat(random_logits(1, VOCAB_SIZE, seed=6), num_draws, axis=0)
    keys = {"seed": [(1 << 40) * i for i in range(num_draws)], "choice_index": list(range(num_draws))}[varied]
    samplers = [make_sampler(params, **{varied: key}) for key in keys]
    counts = np.bincount(sample(logits, samplers, [7] * num_draws).token_ids, minlength=VOCAB_SIZE)
    expected = oracle.distribution(logits[0].astype(np.float64), params)
    assert oracle.chi_square_p_value(counts, expected) > 1e-4


def test_neighbouring_positions_are_independent():
    num_draws = 400_000
    logits = np.zeros((1, 4), dtype=np.float32)
    sampler = make_sampler(SamplingParams())
    drawn = sample_positions(logits, sampler, range(num_draws))
    ids = np.array(drawn).reshape(-1, 2)
    pairs = np.bincount(4 * ids[:, 0] + ids[:, 1], minlength=16)
    assert oracle.chi_square_p_value(pairs, np.full(16, 1 / 16)) > 1e-4


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.5])
def test_two_models_with_the_same_noise_agree_as_often_as_the_design_says(spread):
    num_draws = 50_000
    params = SamplingParams()
    pair = random_logits(2, VOCAB_SIZE, seed=21, spread=1.5)
    pair[1] = pair[0] + random_logits(1, VOCAB_SIZE, seed=22, spread=spread)[0]
    target, draft = (
        sample(np.repeat(pair[i : i + 1], num_draws, axis=0), [make_sampler(params)] * num_draws, positions)
        for i, positions in enumerate([list(range(num_draws))] * 2)
    )
    agreement = np.mean(np.array(target.token_ids) == np.array(draft.token_ids))
    first, second = (oracle.distribution(row.astype(np.float64), params) for row in pair)
    total_variation = np.abs(first - second).sum() / 2
    assert (1 - total_variation) / (1 + total_variation) - 0.01 <= agreement <= 1 - total_variation + 0.01


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("vocab_size", [1, 5, 64, 65, 700])
@pytest.mark.parametrize("params", CASES.values(), ids=CASES.keys())
def test_both_backends_draw_the_tokens_of_the_definition(params, vocab_size, is_masked):
    """Each row has a mask that allows token 0 and about half of the others."""
    params = _for_vocabulary(params, vocab_size)
    num_rows = 12
    logits = random_logits(num_rows, vocab_size, seed=vocab_size)
    prompt, output = [i % vocab_size for i in PROMPT], [i % vocab_size for i in OUTPUT]
    banned = (1, 4) if vocab_size > 4 else ()
    position = (1 << 33) + 5  # needs more than 32 bits
    allowed = np.random.default_rng(vocab_size).random((num_rows, vocab_size)) < 0.5
    allowed[:, 0] = True
    expected, drawn = [], {}
    for row in range(num_rows):
        logits_of_row = oracle.processed_logits(logits[row], params, prompt, output, banned)
        if is_masked:
            logits_of_row[~allowed[row]] = -np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = oracle.noise((row << 50) + 3, row, position, vocab_size) / oracle.distribution(
                logits_of_row, params
            )
        expected.append(int(np.nanargmin(scores)))
    for sampler in (NativeSampler(), ReferenceSampler()):
        queries = []
        for row in range(num_rows):
            state = sampler.begin(
                params, prompt_token_ids=prompt, seed=(row << 50) + 3, choice_index=row, banned_token_ids=banned
            )
            state.append(output)
            queries.append(SampleQuery(row, state, position, (), 3, row if is_masked else None))
        drawn[sampler] = sampler.sample(logits, queries, bitmasks(allowed) if is_masked else None)
        assert [one.token_id for one in drawn[sampler]] == expected
    for native, reference in zip(*drawn.values(), strict=True):
        assert native.logprob.logprob == pytest.approx(reference.logprob.logprob, abs=2e-6)
        assert [token_id for token_id, _ in native.logprob.top] == [token_id for token_id, _ in reference.logprob.top]


@pytest.mark.parametrize("sampler", [NativeSampler(), ReferenceSampler()], ids=["native", "reference"])
def test_a_mask_changes_no_log_probability_and_may_leave_no_token(sampler):
    logits = random_logits(1, 40, seed=3)
    state = sampler.begin(SamplingParams(temperature=0.0), prompt_token_ids=[1], seed=0)
    best = int(logits[0].argmax())
    allowed = np.ones((2, 40), bool)
    allowed[0, best], allowed[1] = False, False
    masks = bitmasks(allowed)
    [free] = sampler.sample(logits, [SampleQuery(0, state, 1, (), 40)])
    [masked] = sampler.sample(logits, [SampleQuery(0, state, 1, (), 40, 0)], masks)
    assert (free.token_id, masked.token_id) == (best, free.logprob.top[1][0])
    assert masked.logprob.top == free.logprob.top
    assert masked.logprob.logprob == free.logprob.top[1][1]
    [empty] = sampler.sample(logits, [SampleQuery(0, state, 1, (), 0, 1)], masks)
    assert (empty.token_id, empty.logprob) == (None, None)
    assert "leaves no token" in empty.failure
    [narrow] = sampler.sample(logits, [SampleQuery(0, state, 1, (), None, 0)], np.full((1, 1), 0xFFFFFFFF, np.uint32))
    assert narrow.token_id == int(logits[0, :32].argmax())  # tokens beyond the words of a mask are not allowed


def bitmasks(allowed: np.ndarray) -> np.ndarray:
    """Returns booleans [rows, vocab_size] as bitmasks, uint32 [rows, words]."""
    padded = np.pad(allowed, ((0, 0), (0, -allowed.shape[1] % 32)))
    return np.packbits(padded, axis=1, bitorder="little").view("<u4").astype(np.uint32)


def _for_vocabulary(params, vocab_size):
    bias = {token: value for token, value in params.logit_bias.items() if token < vocab_size}
    return SamplingParams(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias=bias,
        min_tokens=params.min_tokens and 1 << 40,
    )
