"""Tests what verdicts have beside tokens: log-probabilities, row hashes and the drafter's name; and ragged batches."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.backends.native.sampler import NativeSampler
from paceline.core import Draft, SamplingParams
from paceline.engine.verifier import Verifier, prepare_checks
from tests.support.tables import VOCAB_SIZE, make_sampler, make_sequence, random_table


def _verify(params_and_drafts, logits, first_rows, **options):
    sequences = [make_sequence(params, seed=i) for i, (params, _) in enumerate(params_and_drafts)]
    drafts = [draft for _, draft in params_and_drafts]
    samplers = [make_sampler(sequence) for sequence in sequences]
    checks = prepare_checks(sequences, drafts, samplers, VOCAB_SIZE)
    return Verifier(NativeSampler(), **options).verify(checks, logits, first_rows)


def test_log_probabilities_and_hashes_are_those_of_the_rows_passed():
    logits = random_table(1)[:6]
    greedy = [int(token) for token in logits.argmax(axis=1)]
    params = SamplingParams(temperature=0.0, num_logprobs=2)
    draft = Draft((greedy[1] ^ 1, greedy[1], greedy[3]), (None, None, 1), (1.0,) * 3, "tree")
    [verdict] = _verify([(params, draft)], logits, [1], has_row_hashes=True)
    assert verdict.path == (1, 2)
    assert verdict.committed == (greedy[1], greedy[3], greedy[4])
    assert verdict.row_hashes == tuple(NativeSampler().hash_rows(logits, [1, 3, 4]))
    expected = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum(axis=1, keepdims=True))
    for row, token, entry in zip((1, 3, 4), verdict.committed, verdict.logprobs, strict=True):
        assert entry.token_id == token
        assert entry.logprob == pytest.approx(expected[row, token], abs=1e-6)
        assert [found for found, _ in entry.top] == np.argsort(-expected[row])[:2].tolist()


def test_verdicts_carry_no_logprobs_that_nobody_asked_for():
    plain, asked = SamplingParams(temperature=0.0), SamplingParams(temperature=0.0, num_logprobs=0)
    first, second = _verify([(plain, Draft()), (asked, Draft())], random_table(2)[:2], [0, 1])
    assert (first.logprobs, first.row_hashes, second.row_hashes) == ((), (), ())
    assert [entry.top for entry in second.logprobs] == [[]]


def test_one_batch_holds_drafts_of_every_shape():
    table = random_table(3)
    best = [int(token) for token in table.argmax(axis=1)]
    greedy = SamplingParams(temperature=0.0)
    wrong = Draft.chain([(best[0] + 1) % VOCAB_SIZE] * 2, "ngram")
    right = Draft.chain([best[4], best[5], best[6]], "draft-model")
    verdicts = _verify([(greedy, wrong), (greedy, Draft()), (greedy, right)], table, [0, 3, 4])
    assert [verdict.committed for verdict in verdicts] == [(best[0],), (best[3],), tuple(best[4:8])]
    assert [verdict.drafter for verdict in verdicts] == ["ngram", "none", "draft-model"]
    assert [verdict.num_drafted for verdict in verdicts] == [2, 0, 3]


def test_of_equal_siblings_the_first_is_taken():
    table = random_table(4)
    best = int(table[0].argmax())
    draft = Draft((best, best), (None, None), (1.0, 1.0), "tree")
    [verdict] = _verify([(SamplingParams(temperature=0.0), draft)], table, [0])
    assert verdict.path == (0,)


def test_a_broken_row_is_an_error_of_its_own_sequence():
    table = random_table(5)
    table[0, 1] = np.nan
    best = int(table[1].argmax())
    greedy = SamplingParams(temperature=0.0, num_logprobs=0)
    drafted = [(greedy, Draft.chain([1], "ngram")), (greedy, Draft())]
    broken, sound = _verify(drafted, table, [0, 1], has_row_hashes=True)
    assert (broken.path, broken.committed, broken.logprobs, broken.row_hashes) == ((), (), (), ())
    assert "NaN" in broken.error
    assert (sound.committed, sound.error) == ((best,), None)


def test_what_was_accepted_before_a_broken_row_is_committed():
    table = random_table(6)[:4]
    best = [int(token) for token in table.argmax(axis=1)]
    table[2] = np.nan
    greedy = SamplingParams(temperature=0.0, num_logprobs=0)
    [verdict] = _verify([(greedy, Draft.chain(best[:3], "draft-model"))], table, [0], has_row_hashes=True)
    assert (verdict.path, verdict.committed, verdict.error) == ((0,), tuple(best[:2]), None)
    assert [entry.token_id for entry in verdict.logprobs] == best[:2]
    assert verdict.row_hashes == tuple(NativeSampler().hash_rows(table, [0, 1]))
