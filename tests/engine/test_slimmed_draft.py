"""A slimmed draft model: the text stays the target's, and the engine slims only what its settings say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.checkpoint import GgufFile
from paceline.config import EngineConfig
from paceline.core import Plan, SamplingParams, Sequence
from paceline.drafters.draft_model.kind import draft_load_options
from paceline.drafters.protocol import Drafter, Proposals
from paceline.engine import Engine
from paceline.engine.assembly import build_parts, load_pair
from paceline.tokenizer import Tokenizer
from tests.support.tiny_gguf import TinyPair
from tests.support.watched_drafter import WatchedDrafter

PROMPTS = ["the riders at the front", "def main(", "one two three one two"]
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=40, num_logprobs=1, ignore_eos=True),
    "sampled": SamplingParams(temperature=0.8, top_p=0.95, seed=7, max_tokens=40, num_logprobs=0, ignore_eos=True),
}


def engine_of(pair: TinyPair, **settings: object) -> Engine:
    defaults = {"num_threads": 2, "context_window_size": 128, "drafters": ("draft-model",)}
    config = EngineConfig(
        model=str(pair.target), draft_model=str(pair.draft), speculation="fixed", **(defaults | settings)
    )
    return Engine(config)


def answers_of(engine: Engine, sampling: SamplingParams) -> list[tuple[object, ...]]:
    return [
        (answer.token_ids, answer.text, [entry.logprob.hex() for entry in answer.logprobs])
        for answer in engine.generate(PROMPTS, sampling)
    ]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("slimming", [{}, {"draft_vocab_size": 300}, {"draft_vocab_size": 64}, {"draft_vocab_size": 1}])
def test_a_slimmed_draft_changes_nothing(tiny_pair, sampling, slimming):
    plain = answers_of(engine_of(tiny_pair, num_speculative_tokens=0), SAMPLINGS[sampling])
    engine = engine_of(tiny_pair, **slimming)
    assert answers_of(engine, SAMPLINGS[sampling]) == plain
    stats = engine.stats()
    assert stats.num_draft_tokens > 0
    if slimming.get("draft_vocab_size") != 1:
        assert stats.num_accepted_tokens > 0


class Watched(WatchedDrafter):
    """A drafter that keeps the tokens that it guessed."""

    def __init__(self, drafter: Drafter) -> None:
        super().__init__(drafter)
        self.token_ids: set[int] = set()

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        proposals = super().propose(sequences, plans)
        self.token_ids.update(token for draft in proposals.drafts for token in draft.token_ids)
        return proposals


def test_a_draft_model_guesses_tokens_it_kept_or_read(tiny_pair):
    names = {"model": str(tiny_pair.target), "draft_model": str(tiny_pair.draft)}
    config = EngineConfig(**names, draft_vocab_size=70, num_threads=1, context_window_size=128)
    pair = load_pair(config)
    tokenizer = pair.draft.tokenizer
    kept = set(draft_load_options(config, 128, pair.draft.model.config, tokenizer).slimming.output_token_ids)
    assert kept == {*range(70), *tokenizer.special_token_ids}
    assert tokenizer.eos_token_ids <= kept
    parts = build_parts(pair, config, ("draft-model",), 64)
    watched = Watched(parts.drafters[0])
    engine = Engine.from_parts(config, replace(parts, drafters=(watched,)))
    answers = engine.generate(PROMPTS, SAMPLINGS["sampled"])
    seen = {token for answer in answers for token in (*answer.prompt_token_ids, *answer.token_ids)}
    assert watched.token_ids
    assert watched.token_ids <= kept | seen


def test_only_the_draft_model_is_slimmed_and_only_if_wanted(tiny_pair):
    names = {"model": str(tiny_pair.target), "draft_model": str(tiny_pair.draft), "num_threads": 1}
    slim = load_pair(EngineConfig(**names, draft_vocab_size=32))
    whole = load_pair(EngineConfig(**names, draft_vocab_size=None, draft_weight_bits=None))
    assert slim.target.model.weight_bytes == whole.target.model.weight_bytes
    assert slim.draft.model.weight_bytes < whole.draft.model.weight_bytes


def test_special_tokens_are_those_that_text_cannot_spell(tiny_pair):
    with GgufFile.open(tiny_pair.target) as gguf:
        tokenizer = Tokenizer.from_gguf(gguf, None)
    assert tokenizer.eos_token_ids <= set(tokenizer.special_token_ids)
    plain = set(tokenizer.encode("the riders at the front", parse_special=False))
    assert not plain & set(tokenizer.special_token_ids)
