"""Wrong arguments of `generate` and `stream` are refused with a clear message. For example, a single text is not taken
as a list of letters."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.core import Request, SamplingParams, SpeculationParams
from paceline.core.errors import InvalidRequestError
from paceline.drafters.ngram import NgramDrafter
from tests.engine.engine_factory import run, token_ids

GREEDY = SamplingParams(max_tokens=4, temperature=0.0)


@pytest.mark.parametrize("prompts", ["def f(n):", b"def f(n):"])
def test_a_text_alone_is_no_list_of_prompts(engines, prompts):
    engine = engines.make()
    with pytest.raises(
        InvalidRequestError, match=r"prompts is a single text; pass a list of prompts, \[prompt\] for one"
    ):
        engine.generate(prompts, GREEDY)
    assert engine.stats().num_steps == 0


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (5, "a prompt is 5; it must be a text or a list of token ids"),
        (None, "a prompt is None; it must be a text or a list of token ids"),
        (b"ab", "a prompt is b'ab'; it must be a text or a list of token ids"),
        (["a", "b"], "a prompt contains 'a'; token ids must be integers"),
        ([5, 6.0], "a prompt contains 6.0; token ids must be integers"),
    ],
)
def test_a_prompt_is_a_text_or_token_ids(engines, prompt, message):
    engine = engines.make()
    for call in (lambda: engine.generate([[5], prompt], GREEDY), lambda: list(engine.stream(prompt, GREEDY))):
        with pytest.raises(InvalidRequestError) as caught:
            call()
        assert (str(caught.value), caught.value.param) == (message, "prompt")
    assert engine.stats().num_steps == 0


def test_token_ids_may_come_from_numpy(engines):
    engine = engines.make()
    expected, actual = engine.generate([[5, 6, 7], np.array([5, 6, 7])], GREEDY)
    assert actual.token_ids == expected.token_ids


def test_several_texts_are_not_given_as_one(engines):
    engine = engines.make()
    with pytest.raises(InvalidRequestError, match=r"stop is a single text; pass a tuple of texts, \('end',\) for one"):
        engine.generate(["x"], SamplingParams(stop="end"))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="drafters is a single text"):
        engine.generate(["x"], GREEDY, SpeculationParams(drafters="suffix"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"num_logprobs": 1.5}, "num_logprobs: expected `int | null`, got `float`"),
        ({"max_tokens": 2.5}, "max_tokens: expected `int | null`, got `float`"),
        ({"seed": "1"}, "seed: expected `int | null`, got `str`"),
        ({"stop": (1,)}, "stop: expected `str`, got `int`"),
        ({"logit_bias": {1.5: 1.0}}, "logit_bias: expected `int`, got `float`"),
        ({"temperature": None}, "temperature: expected `float`, got `null`"),
        ({"stop_token_ids": (object(),)}, "a parameter: a value of type object is not understood"),
    ],
)
def test_parameters_have_their_types(engines, sampling, message):
    engine = engines.make()
    with pytest.raises(InvalidRequestError) as caught:
        engine.generate([[5]], SamplingParams(**sampling))
    assert str(caught.value) == message
    with pytest.raises(InvalidRequestError, match="max_window: expected"):
        engine.generate([[5]], GREEDY, SpeculationParams(max_window=1.5))  # type: ignore[arg-type]
    assert engine.stats().num_steps == 0


def test_parameters_may_come_from_numpy_and_in_lists(engines):
    engine = engines.make()
    plain = SamplingParams(max_tokens=4, temperature=0.5, seed=7, stop=("zz",), logit_bias={3: 1.0})
    same = SamplingParams(
        max_tokens=np.int64(4),  # type: ignore[arg-type]
        temperature=np.float64(0.5),
        seed=np.uint64(7),  # type: ignore[arg-type]
        stop=["zz"],  # type: ignore[arg-type]
        logit_bias={np.int32(3): np.float32(1.0)},  # type: ignore[dict-item]
    )
    expected, actual = (engine.generate([[5, 6, 7]], sampling)[0].token_ids for sampling in (plain, same))
    assert actual == expected


def test_modes_and_drafters_may_be_given_by_their_names(engines):
    engine = engines.make([NgramDrafter()], window=4)
    prompt = [5, 6, 7, 5, 6, 7, 5, 6]
    sampling = SamplingParams(max_tokens=24, temperature=0.0)
    (drafting,) = engine.generate([prompt], sampling)
    assert drafting.speculation.num_draft_tokens > 0
    (off,) = engine.generate([prompt], sampling, SpeculationParams(mode="off"))  # type: ignore[arg-type]
    assert (off.speculation.num_draft_tokens, off.token_ids) == (0, drafting.token_ids)
    with pytest.raises(InvalidRequestError, match=r"'oracle' is not a drafter; known are: .*ngram"):
        engine.generate([prompt], sampling, SpeculationParams(drafters=("ngram", "oracle")))
    with pytest.raises(InvalidRequestError, match="mode: invalid enum value 'sometimes'"):
        engine.generate([prompt], sampling, SpeculationParams(mode="sometimes"))  # type: ignore[arg-type]


def test_a_top_p_of_0_keeps_the_likeliest_token(engines):
    engine = engines.make()
    (greedy,) = engine.generate([[5, 6, 7]], SamplingParams(max_tokens=8, temperature=0.0))
    (narrow,) = engine.generate([[5, 6, 7]], SamplingParams(max_tokens=8, temperature=2.0, top_p=0.0))
    assert narrow.token_ids == greedy.token_ids


def test_requests_of_generate_do_not_meet_those_added_under_any_name(engines):
    engine = engines.make()
    alone = engine.generate([[5, 6]], GREEDY)[0].token_ids
    for number in range(4):
        engine.add(Request(request_id=f"local-{number}", prompt_token_ids=[5, 6], sampling=GREEDY))
    (completion,) = engine.generate([[5, 6]], GREEDY)
    assert completion.token_ids == alone
    outputs = run(engine)
    assert sorted(outputs) == [f"local-{number}" for number in range(4)]
    assert all(token_ids(own) == alone for own in outputs.values())


def test_parameters_of_another_kind_are_refused(engines):
    engine = engines.make()
    for wrong in ([GREEDY], {"temperature": 0.0}, "greedy"):
        with pytest.raises(InvalidRequestError, match="expected a SamplingParams, not an object of type"):
            engine.generate([[5]], wrong)
    with pytest.raises(InvalidRequestError, match="expected a SpeculationParams, not an object of type str"):
        engine.generate([[5]], GREEDY, "off")
    with pytest.raises(InvalidRequestError, match="stop: expected `str`, got `bytes`"):
        engine.generate([[5]], SamplingParams(stop=(b"while",)))  # type: ignore[arg-type]


def test_a_tenant_that_is_no_text_is_refused_and_spoils_nothing(engines):
    engine = engines.make()
    with pytest.raises(InvalidRequestError, match="which is not a text of Unicode"):
        engine.add(Request(request_id="bad", prompt_token_ids=[1, 2], tenant="\ud800"))
    assert len(engine.generate([[5]], GREEDY)[0].token_ids) > 0
