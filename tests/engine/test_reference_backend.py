"""The whole engine runs on the reference backend, with its own sampler and no native model; drafts change no text."""

from __future__ import annotations

import pytest

from paceline import Engine, EngineConfig, SamplingParams
from paceline.core.errors import ConfigError
from tests.support.tiny_gguf import TinyPair, write_tiny_pair

PROMPTS = ["the riders at the front", "one two three one two three"]
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True, num_logprobs=2),
    "sampled": SamplingParams(temperature=0.8, seed=3, max_tokens=16, ignore_eos=True, num_logprobs=2),
}


@pytest.fixture(scope="module")
def small_pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """Returns a pair of very small models, because numpy is slow."""
    return write_tiny_pair(tmp_path_factory.mktemp("small"), "qwen2", "Q8_0", hidden_size=64, head_dim=16, ffn_size=96)


def engine_of(pair: TinyPair, **settings: object) -> Engine:
    defaults = {"backend": "reference", "draft_model": str(pair.draft), "speculation": "fixed"}
    return Engine(EngineConfig(model=str(pair.target), context_window_size=128, **(defaults | settings)))


def answers_of(engine: Engine, sampling: SamplingParams) -> list[tuple[object, ...]]:
    return [
        (answer.token_ids, answer.text, [entry.logprob.hex() for entry in answer.logprobs])
        for answer in engine.generate(PROMPTS, sampling)
    ]


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize(
    "settings",
    [
        {"drafters": ("suffix", "ngram")},
        {"drafters": ("draft-model",)},
        {"drafters": ("shared-layers",), "shared_layers": 2},
        {"speculation": "auto"},
    ],
    ids=str,
)
def test_speculation_changes_nothing(small_pair, settings, sampling, tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_CACHE_DIR", str(tmp_path))
    plain = answers_of(engine_of(small_pair, drafters=()), sampling)
    engine = engine_of(small_pair, **settings)
    assert answers_of(engine, sampling) == plain
    if {"draft-model", "shared-layers"}.intersection(settings.get("drafters", ())):  # others find few repetitions here
        assert engine.stats().num_accepted_tokens > 0


def test_it_says_nearly_what_the_native_one_says(small_pair):
    """Both backends run the same model with different arithmetic, so log-probabilities and greedy tokens agree."""
    reference, native = (
        engine_of(small_pair, backend=backend, drafters=(), activation_bits=15).generate(PROMPTS, SAMPLINGS["greedy"])
        for backend in ("reference", "native")
    )
    for one, other in zip(reference, native, strict=True):
        assert one.token_ids == other.token_ids
        for left, right in zip(one.logprobs, other.logprobs, strict=True):
            assert left.logprob == pytest.approx(right.logprob, abs=0.01)


def test_an_unknown_backend_is_refused(small_pair):
    with pytest.raises(ConfigError, match="there is no backend named 'gpu'; choose from native, reference"):
        engine_of(small_pair, backend="gpu")
