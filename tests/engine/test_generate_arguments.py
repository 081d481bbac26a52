"""What programs pass to `generate` and `stream` by mistake is refused with words, not answered letter by letter."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.core import SamplingParams, SpeculationParams
from paceline.core.errors import InvalidRequestError

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
        (["a", "b"], "a prompt holds 'a'; token ids are integers"),
        ([5, 6.0], "a prompt holds 6.0; token ids are integers"),
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
