"""Log-probabilities of the prompt's tokens: those that the same tokens get as output, in any batch and cache state."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.core import SamplingParams
from paceline.drafters.ngram import NgramDrafter
from tests.engine.engine_factory import request, run

PROMPT = list(b"the riders at the front of the race ride on")
SCORED = SamplingParams(max_tokens=3, temperature=0.0, num_logprobs=2, has_prompt_logprobs=True)


def scores(engine, prompt, sampling=SCORED):
    return engine.generate([prompt], sampling)[0].prompt_logprobs


def test_scores_are_the_logprobs_that_the_tokens_have_as_output(engines):
    sampling = SamplingParams(max_tokens=30, seed=5, temperature=1.0, num_logprobs=2, ignore_eos=True)
    answer = engines.make().generate([PROMPT], sampling)[0]
    found = scores(engines.make(), PROMPT + answer.token_ids)
    assert len(found) == len(PROMPT) + 30 - 1
    assert found[len(PROMPT) - 1 :] == answer.logprobs
    assert [entry.token_id for entry in found] == (PROMPT + answer.token_ids)[1:]


def test_scores_are_the_logarithms_of_the_softmax(engines):
    engine = engines.make()
    found = scores(engine, PROMPT)
    likeliest = [entry.top[0] for entry in found]
    assert all(entry.logprob <= top[1] for entry, top in zip(found, likeliest, strict=True))
    everything = scores(engine, PROMPT, SamplingParams(max_tokens=1, num_logprobs=384, has_prompt_logprobs=True))
    for entry in everything:
        assert np.exp([value for _, value in entry.top]).sum() == pytest.approx(1.0, abs=1e-4)
        assert dict(entry.top)[entry.token_id] == entry.logprob


@pytest.mark.parametrize("chunk_size", [1, 7, 64])
def test_scores_do_not_depend_on_chunks_drafts_and_the_cache(engines, chunk_size):
    expected = scores(engines.make(), PROMPT)
    engine = engines.make([NgramDrafter()], window=4, prefill_chunk_size=chunk_size)
    assert scores(engine, PROMPT) == expected
    assert scores(engine, PROMPT) == expected  # the blocks of the prompt are cached now
    assert engine.generate([PROMPT], SamplingParams(max_tokens=3, temperature=0.0))[0].num_cached_tokens > 0
    engine.check_integrity()


def test_only_the_requests_that_ask_get_scores_and_only_once(engines):
    engine = engines.make()
    asking = {"num_logprobs": 0, "has_prompt_logprobs": True, "max_tokens": 6}
    for name, sampling in (("asks", asking), ("asks not", {"max_tokens": 6})):
        engine.add(request(name, PROMPT, temperature=0.0, **sampling))
    outputs = run(engine)
    with_scores = {name: [one.prompt_logprobs is not None for one in found] for name, found in outputs.items()}
    assert with_scores["asks"] == [True] + [False] * (len(outputs["asks"]) - 1)
    assert not any(with_scores["asks not"])


def test_a_prompt_of_one_token_has_no_scores(engines):
    assert scores(engines.make(), PROMPT[:1]) == []


def test_scores_survive_a_preemption(engines):
    expected = [scores(engines.make(), prompt) for prompt in (PROMPT, PROMPT[::-1])]
    engine = engines.make(num_blocks=8, context_window_size=128)
    for index, prompt in enumerate((PROMPT, PROMPT[::-1])):
        sampling = {"num_logprobs": 2, "has_prompt_logprobs": True, "max_tokens": 60, "ignore_eos": True}
        engine.add(request(f"{index}", prompt, temperature=0.0, **sampling))
    outputs = run(engine)
    assert engine.stats().num_preemptions > 0
    for index in range(2):
        found = [one.prompt_logprobs for one in outputs[f"{index}"] if one.prompt_logprobs is not None]
        assert found == [expected[index]]
