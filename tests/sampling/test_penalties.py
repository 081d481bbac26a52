"""Compares greedy tokens after penalties, bias and bans with numpy; drafted tokens on the path count as output."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.backends.native.sampler import NativeSampler
from paceline.core import SamplingParams, Sequence
from paceline.core.errors import InvalidRequestError
from paceline.core.request import Request
from paceline.sampling import check_sampling_params
from paceline.sampling.sequence_sampler import SequenceSampler
from tests.sampling import oracle
from tests.sampling.sampling_calls import make_sampler, random_logits, sample

VOCAB_SIZE = 40
PENALTIES = [
    SamplingParams(temperature=0.0, presence_penalty=1.5),
    SamplingParams(temperature=0.0, frequency_penalty=0.8),
    SamplingParams(temperature=0.0, frequency_penalty=-1.0),
    SamplingParams(temperature=0.0, repetition_penalty=1.8),
    SamplingParams(temperature=0.0, repetition_penalty=0.5),
    SamplingParams(
        temperature=0.0,
        presence_penalty=0.4,
        frequency_penalty=0.3,
        repetition_penalty=1.2,
        logit_bias={3: 2.0, 8: -1.0, 20: 0.5},
        min_tokens=6,
    ),
]
BANNED = (1, 11, 30)


def _random_ids(generator, count):
    return [int(token) for token in generator.integers(0, VOCAB_SIZE, count)]


@pytest.mark.parametrize("params", PENALTIES)
def test_greedy_tokens_follow_the_numpy_definition(params):
    generator = np.random.default_rng(3)
    logits = random_logits(60, VOCAB_SIZE, seed=4, spread=1.0)
    samplers, positions, extras, expected = [], [], [], []
    for row in logits:
        prompt, output, extra = (_random_ids(generator, count) for count in (10, 4, int(generator.integers(0, 5))))
        sampler = make_sampler(params, prompt=prompt, banned=BANNED)
        sampler.append(output[:3])
        sampler.append(output[3:])
        samplers.append(sampler)
        positions.append(len(prompt) + len(output) + len(extra))
        extras.append(extra)
        expected.append(int(oracle.processed_logits(row, params, prompt, output + extra, BANNED).argmax()))
    assert sample(logits, samplers, positions, extra=extras).token_ids == expected
    plain = [int(row.argmax()) for row in logits]
    assert plain != expected


def test_draft_tokens_on_the_path_count_as_committed_ones_do():
    params = PENALTIES[-1]
    logits = random_logits(50, VOCAB_SIZE, seed=8, spread=1.0)
    path = [2, 2, 9, 17]
    waiting = make_sampler(params, prompt=[2, 3])
    committed = make_sampler(params, prompt=[2, 3])
    committed.append(path)
    position = [2 + len(path)] * 50
    assert (
        sample(logits, [waiting] * 50, position, extra=[path] * 50).token_ids
        == sample(logits, [committed] * 50, position).token_ids
    )


def test_a_resumed_sequence_counts_its_earlier_output():
    params = SamplingParams(temperature=0.0, presence_penalty=2.0)
    request = Request(request_id="r", prompt_token_ids=[4], sampling=params, resumed_token_ids=[6])
    sequence = Sequence(request=request, seed=0, token_ids=[4, 6])
    logits = np.zeros((1, VOCAB_SIZE), dtype=np.float32)
    logits[0, [4, 6, 7]] = 3.0, 4.0, 2.5
    assert sample(logits, [make_sampler(params, prompt=[4])], [2]).token_ids == [6]
    resumed = SequenceSampler.begin(NativeSampler(), sequence, vocab_size=VOCAB_SIZE)
    assert sample(logits, [resumed.rows], [2]).token_ids == [4]


def test_a_ban_ends_after_min_tokens():
    logits = np.zeros((1, VOCAB_SIZE), dtype=np.float32)
    logits[0, [11, 5]] = 9.0, 8.0
    sampler = make_sampler(SamplingParams(temperature=0.0, min_tokens=2), prompt=[0] * 7, banned=BANNED)
    assert [sample(logits, [sampler], [position]).token_ids[0] for position in (7, 8, 9)] == [5, 5, 11]


def test_a_ban_of_every_token_is_refused():
    request = Request(request_id="r", prompt_token_ids=[1], sampling=SamplingParams(min_tokens=1))
    sequence = Sequence(request=request, seed=0, token_ids=[1])
    with pytest.raises(InvalidRequestError, match="every token") as raised:
        SequenceSampler.begin(NativeSampler(), sequence, vocab_size=8, ending_token_ids=range(-1, 9))
    assert raised.value.param == "min_tokens"
    unbanned = make_sampler(SamplingParams(temperature=0.0), banned=range(4))
    assert sample(np.zeros((1, 4), np.float32), [unbanned], [0]).token_ids == [0]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 2**63}, "top_k"),
        ({"min_p": -1.0}, "min_p"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": -3.0}, "frequency_penalty"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 2**63}, "min_tokens"),
        ({"logit_bias": {VOCAB_SIZE: 1.0}}, "logit_bias"),
        ({"logit_bias": {1: 101.0}}, "logit_bias"),
        ({"num_logprobs": -2}, "num_logprobs"),
    ],
)
def test_a_parameter_out_of_range_is_named(changes, name):
    with pytest.raises(InvalidRequestError, match=name) as raised:
        check_sampling_params(SamplingParams(**changes), VOCAB_SIZE)
    assert raised.value.param == name
