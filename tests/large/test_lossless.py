"""Tests the promise with 5,120 tokens for each drafter and sampling, on SmolLM2 and on the default pair."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from paceline import EngineConfig
from paceline.checkpoint import resolve_model
from paceline.engine.assembly import LoadedPair, load_pair
from paceline.operations.workload import read_tasks
from tests.support.lossless_trials import MAX_WINDOW, SAMPLINGS, Expected, Runner, Trial, run_trial
from tests.support.shallow_model import load_without_layers

pytestmark = pytest.mark.large

NUM_PROMPTS = 20
NUM_TOKENS = 256
MAX_PROMPT_SIZE = 300
NUM_FEW_BLOCKS = 48
NUM_MIXED_PROMPTS = 8
NUM_MIXED_TOKENS = 64

_logger = logging.getLogger(__name__)


def load_smollm2() -> LoadedPair:
    """Returns SmolLM2 with itself, without one layer, as the draft model, because it has no smaller sibling."""
    twins = load_pair(EngineConfig(model="smollm2-135m", draft_model="smollm2-135m"))
    return replace(twins, draft=load_without_layers(resolve_model("smollm2-135m").path, {25}))


def load_coder() -> LoadedPair:
    return load_pair(EngineConfig(model="qwen2.5-coder-1.5b", draft_model="qwen2.5-coder-0.5b"))


@dataclass(frozen=True)
class Pair:
    runner: Runner
    expected: Expected


# All of the target's layers but the last two or three draft. Fewer layers are hardly ever right.
@pytest.fixture(scope="module", params=[(load_smollm2, 28), (load_coder, 25)], ids=["smollm2", "coder"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    load, shared_layers = request.param
    config = EngineConfig(
        model="real", shared_layers=shared_layers, num_speculative_tokens=MAX_WINDOW, context_window_size=640
    )
    runner = Runner(load(), config)
    yield Pair(runner, runner.plain_answers(workload_prompts(runner.pair), NUM_TOKENS))
    gc.collect()


def workload_prompts(pair: LoadedPair) -> list[list[int]]:
    """Returns the prompts of the workload that are short enough, at most `NUM_PROMPTS`.

    It takes every fourth of them first, so that all kinds of tasks are among them.
    """
    prompts = [pair.target.tokenizer.encode_chat(task.messages) for task in read_tasks()]
    fitting = [prompt for prompt in prompts if len(prompt) <= MAX_PROMPT_SIZE]
    return [prompt for start in range(4) for prompt in fitting[start::4]][:NUM_PROMPTS]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("drafter", ["suffix", "ngram", "shared-layers", "draft-model"])
def test_speculation_changes_nothing(pair, drafter, sampling):
    result = run_trial(pair.runner, (drafter,), sampling, pair.expected)
    _logger.info(result.summary)
    result.check()
    assert result.num_tokens >= 5000
    result.check_acceptance(num_classes=8)


def test_preemption_changes_nothing(pair):
    run = pair.runner.run(("suffix", "ngram", "draft-model"), num_blocks=NUM_FEW_BLOCKS)
    result = Trial(run, "sampled", pair.expected, "few blocks").live()
    stats = run.engine.stats()
    hits = stats.num_prefix_hit_tokens
    _logger.info("%s; %d preemptions, %d prefix hit tokens", result.summary, stats.num_preemptions, hits)
    result.check()
    assert stats.num_preemptions > 0
    assert hits > 0


@pytest.fixture(scope="module")
def mixed() -> Iterator[Pair]:
    """Yields Qwen2.5 Coder 0.5B with SmolLM2 135M as its draft model, which has another tokenizer."""
    pair = load_pair(EngineConfig(model="qwen2.5-coder-0.5b", draft_model="smollm2-135m"))
    assert pair.vocabulary_map is not None
    runner = Runner(pair, EngineConfig(model="real", num_speculative_tokens=MAX_WINDOW, context_window_size=640))
    yield Pair(runner, runner.plain_answers(workload_prompts(pair)[:NUM_MIXED_PROMPTS], NUM_MIXED_TOKENS))
    gc.collect()


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_draft_of_another_family_changes_nothing(mixed, sampling):
    result = run_trial(mixed.runner, ("draft-model",), sampling, mixed.expected)
    _logger.info(result.summary)
    result.check()
    assert result.accepted.total() > 0.1 * result.num_tokens
