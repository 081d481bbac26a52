"""A draft model with another tokenizer: tokens of its drafts are accepted, and the text stays the target's."""

from __future__ import annotations

import pytest

from paceline.config import EngineConfig
from paceline.core import FinishReason, Request, SamplingParams
from paceline.core.errors import VocabularyMismatchError
from paceline.engine import Engine
from tests.engine.engine_factory import answer, run
from tests.support.tiny_gguf import TinyPair, write_tiny_gguf, write_tiny_pair
from tests.support.tiny_vocabulary import VocabularyChange

PROMPTS = [
    "the riders at the front",
    "def main(value): é 🙂 日本",
    "<|im_start|>user\nhello world<|im_end|>\n",
    "model words",
]
SAMPLINGS = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.8, "top_p": 0.95, "seed": 7},
    "penalized": {"temperature": 0.7, "repetition_penalty": 1.2, "logit_bias": {101: -2.0, 116: 1.0}, "seed": 5},
}
NUM_TOKENS = 48


@pytest.fixture(scope="module")
def same(tiny_pair: TinyPair) -> TinyPair:
    """Returns a target and a draft model with the same vocabulary."""
    return tiny_pair


@pytest.fixture(scope="module")
def permuted(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """Returns the same models, but the draft model's tokens have other ids."""
    return write_tiny_pair(tmp_path_factory.mktemp("permuted"), draft_vocabulary=VocabularyChange(seed=1))


@pytest.fixture(scope="module")
def partly_foreign(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """Returns a pair whose draft model lacks 20 of the target's merged tokens and has 20 others."""
    return write_tiny_pair(
        tmp_path_factory.mktemp("foreign"), draft_vocabulary=VocabularyChange(seed=2, num_foreign=20)
    )


def engine_of(pair: TinyPair, **settings: object) -> Engine:
    defaults = {"num_threads": 2, "context_window_size": 160, "drafters": ("draft-model",), "speculation": "fixed"}
    whole = {"draft_vocab_size": None, "num_speculative_tokens": 6}
    config = EngineConfig(model=str(pair.target), draft_model=str(pair.draft), **(defaults | whole | settings))
    return Engine(config)


def requests_of(engine: Engine, sampling: str, num_resumed: int = 0, resumed: dict[str, list[int]] | None = None):
    params = SamplingParams(**SAMPLINGS[sampling], max_tokens=NUM_TOKENS, num_logprobs=0, ignore_eos=True)
    return [
        Request(
            request_id=prompt,
            prompt_token_ids=engine.tokenizer.encode_prompt(prompt),
            sampling=params,
            resumed_token_ids=resumed[prompt][:num_resumed] if resumed else [],
        )
        for prompt in PROMPTS
    ]


def outputs_of(engine: Engine, sampling: str):
    for item in requests_of(engine, sampling):
        engine.add(item)
    return run(engine)


def answers_of(engine: Engine, sampling: str) -> dict[str, tuple[object, ...]]:
    return {name: answer(outputs) for name, outputs in outputs_of(engine, sampling).items()}


@pytest.fixture(scope="module", params=SAMPLINGS)
def plain(request: pytest.FixtureRequest, same: TinyPair) -> tuple[str, dict[str, tuple[object, ...]]]:
    """Returns the name of a sampling, and the target's answers with that sampling and without drafts."""
    return request.param, answers_of(engine_of(same, num_speculative_tokens=0), request.param)


def test_other_ids_for_the_same_tokens_make_no_difference(same, permuted, plain):
    """The drafts are those of equal vocabularies, so noise, penalties and bias apply to the intended tokens."""
    sampling, expected = plain
    engines = [engine_of(pair) for pair in (same, permuted)]
    assert [answers_of(engine, sampling) for engine in engines] == [expected, expected]
    one, other = (engine.stats() for engine in engines)
    assert one.num_accepted_tokens == other.num_accepted_tokens > 20
    assert one.num_draft_tokens == other.num_draft_tokens
    assert one.num_accepted_per_position == other.num_accepted_per_position


@pytest.mark.parametrize("slimming", [{}, {"draft_vocab_size": 300}, {"draft_vocab_size": 64}])
def test_tokens_that_one_of_them_lacks_change_nothing(partly_foreign, plain, slimming):
    sampling, expected = plain
    engine = engine_of(partly_foreign, **slimming)
    assert answers_of(engine, sampling) == expected
    stats = engine.stats()
    assert engine.drafter_names == ("draft-model",)
    assert 0 < stats.num_accepted_tokens < stats.num_draft_tokens


def test_the_texts_hold_tokens_that_the_draft_lacks(partly_foreign, plain):
    """Without such tokens, the tests in this file would show little."""
    engine = engine_of(partly_foreign)
    foreign = set(range(256 + 105, 256 + 125))
    lengths = {name: len(foreign.intersection(answer[0])) for name, answer in plain[1].items()}
    assert sum(lengths.values()) > 5
    assert any(foreign.intersection(engine.tokenizer.encode_prompt(prompt)) for prompt in PROMPTS)


def test_preemption_changes_nothing(partly_foreign, plain):
    sampling, expected = plain
    engine = engine_of(partly_foreign, context_window_size=112, max_batch_size=4, kv_cache_size_bytes=0x50000)
    assert answers_of(engine, sampling) == expected
    assert engine.stats().num_preemptions > 0
    assert engine.stats().num_accepted_tokens > 0
    assert engine.drafter_names == ("draft-model",)


@pytest.mark.parametrize("num_resumed", [1, 17, 40])
def test_a_resumed_text_goes_on_as_it_was(partly_foreign, plain, num_resumed):
    sampling, expected = plain
    engine = engine_of(partly_foreign)
    tokens = {name: answer[0] for name, answer in expected.items()}
    for item in requests_of(engine, sampling, num_resumed, tokens):
        engine.add(item)
    outputs = run(engine)
    for name, items in outputs.items():
        assert [token for output in items for token in output.token_ids] == tokens[name][num_resumed:]
        assert items[-1].finish_reason is FinishReason.LENGTH
    assert engine.stats().num_accepted_tokens > 0


@pytest.mark.parametrize("num_tokens", [20, 60, 120])
def test_a_text_that_is_longer_for_the_draft_model_is_drafted_for_all_the_same(partly_foreign, num_tokens):
    """The draft model has twice the target's context. Of a text that is still too long for it, it reads a part."""
    engine, plain = (engine_of(partly_foreign, **options) for options in ({}, {"num_speculative_tokens": 0}))
    lacking = range(256 + 105, 256 + 125)
    longest = max(lacking, key=lambda token_id: len(engine.tokenizer.text_bytes(token_id)))
    sampling = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)
    drafted, expected = (each.generate([[longest] * num_tokens], sampling)[0] for each in (engine, plain))
    assert drafted.token_ids == expected.token_ids
    assert engine.drafter_names == ("draft-model",)
    assert drafted.speculation.num_draft_tokens > 0


def test_automatic_mode_changes_nothing(partly_foreign, plain, tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_CACHE_DIR", str(tmp_path))
    sampling, expected = plain
    engine = engine_of(partly_foreign, speculation="auto", drafters=("suffix", "draft-model"))
    assert answers_of(engine, sampling) == expected
    assert engine.drafter_names == ("suffix", "draft-model")


def test_a_vocabulary_with_too_little_in_common_is_refused_with_the_numbers(same, tmp_path):
    other = write_tiny_gguf(tmp_path / "other.gguf", "qwen2", "Q8_0", hidden_size=64, head_dim=16, vocab_size=300)
    message = (
        "draft model other has another vocabulary than target, and they share too few tokens: 41 of the target's 125 "
        "most frequent tokens of several bytes, and 41 of the draft's 41, but at least half of each are needed"
    )
    with pytest.raises(VocabularyMismatchError, match=message):
        engine_of(TinyPair(same.target, other))
