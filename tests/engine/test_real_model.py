"""Tests the promise on SmolLM2: tokens, text, log-probabilities and whole rows of logits equal those of plain decoding,
bit for bit.

tests/large tests the same with more than 5,000 tokens, and on the default pair.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from paceline import EngineConfig
from paceline.backends.protocol import BLOCK_SIZE
from paceline.engine.assembly import LoadedPair, load_pair
from paceline.operations.workload import read_tasks
from tests.engine.scripted_drafters import TreeDrafter
from tests.operations.faulty_model import make_faulty
from tests.support.lossless_trials import MAX_WINDOW, SAMPLINGS, Expected, Runner, Trial, request, run_trial
from tests.support.shallow_model import load_without_layers

pytestmark = pytest.mark.real

NUM_TOKENS = 20
SKIPPED_LAYER = 25
REPEATED_TEXTS = (
    "the sun rises and the sun sets. ",
    "red, green, blue, ",
    "x = x + 1\n",
    "Row, row, row your boat\n",
    "<td>1</td><td>2</td>\n",
    "to be or not to be, ",
    "north south east west ",
    "0 1 1 0 1 0 0 1 ",
)
SHARED_LAYERS = 26  # of 30
ALL_DRAFTERS = ("suffix", "ngram", "shared-layers", "draft-model")

_logger = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def twins(smollm2_path: Path) -> LoadedPair:
    """Returns SmolLM2 with its own whole model as the draft model."""
    whole = {"draft_vocab_size": None, "draft_weight_bits": None}
    return load_pair(EngineConfig(model=str(smollm2_path), draft_model=str(smollm2_path), **whole))


@pytest.fixture(scope="module")
def runner(twins: LoadedPair, smollm2_path: Path) -> Runner:
    """Returns a runner of SmolLM2, whose draft model is SmolLM2 without one layer."""
    pair = replace(twins, draft=load_without_layers(smollm2_path, {SKIPPED_LAYER}))
    config = EngineConfig(
        model="smollm2",
        shared_layers=SHARED_LAYERS,
        num_speculative_tokens=MAX_WINDOW,
        context_window_size=176,
        prefill_chunk_size=96,
    )
    return Runner(pair, config)


@pytest.fixture(scope="module")
def expected(runner: Runner) -> Expected:
    """Returns the answers of plain decoding. Every second prompt repeats itself, for n-grams; the others are chats."""
    tokenizer = runner.pair.target.tokenizer
    chats = sorted((tokenizer.encode_chat(task.messages) for task in read_tasks()), key=len)
    repeated = [tokenizer.encode_prompt(text * 5) for text in REPEATED_TEXTS]
    prompts = [prompt for pair in zip(chats, repeated, strict=False) for prompt in pair]
    return runner.plain_answers(prompts, NUM_TOKENS)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("drafter", ALL_DRAFTERS)
def test_speculation_changes_nothing(runner, expected, drafter, sampling):
    result = run_trial(runner, (drafter,), sampling, expected)
    _logger.info(result.summary)
    result.check()
    result.check_acceptance(num_classes=4)


def test_a_model_that_drafts_for_itself_is_never_wrong(runner, twins, expected):
    """Target and draft model compute a row in different batches, chunks and KV blocks, but agree on every token."""
    result = run_trial(replace(runner, pair=twins), ("draft-model",), "sampled", expected)
    _logger.info(result.summary)
    result.check()
    assert result.accepted == result.drafted
    assert result.longest_path == MAX_WINDOW


def test_a_trial_notices_one_bit(runner, expected):
    """Tests the comparison itself. One logit of this target has another last bit in batches: the tokens stay the same,
    but the rows of logits differ."""
    faulty = make_faulty(runner.pair, token_id=7, rise=None)
    result = run_trial(replace(runner, pair=faulty), ("ngram",), "greedy", expected.first(4))
    assert result.num_different_tokens == 0
    assert result.num_different_rows > 0


def test_trees_change_nothing(runner, expected):
    answers = zip(expected.prompts, expected.answers["sampled"], strict=True)
    futures = {tuple(prompt): answer.token_ids for prompt, answer in answers}
    drafter = TreeDrafter(futures, runner.pair.target.model.config.vocab_size)
    result = run_trial(runner, (drafter,), "sampled", expected)
    _logger.info(result.summary)
    result.check()
    result.check_acceptance(num_classes=4)


@pytest.mark.parametrize(("drafters", "num_blocks"), [(ALL_DRAFTERS, 9), (ALL_DRAFTERS[1:], 9), (ALL_DRAFTERS[1:], 12)])
def test_preemption_changes_nothing(runner, expected, drafters, num_blocks):
    """No request is aborted here, so every preempted request still gives its full answer."""
    prompts = sorted(expected.prompts, key=len)[:4]
    full = runner.plain_answers(prompts, num_tokens=32)
    run = runner.run(drafters, num_blocks=num_blocks, context_window_size=112)
    for sampling in SAMPLINGS:
        for index, window in enumerate((1, 3, 7, 16)):
            run.add(request(f"{sampling} {index}", prompts[index], sampling, index, full.num_tokens, window))
    run.finish()
    assert run.engine.stats().num_preemptions > 0
    for sampling, answers in full.answers.items():
        assert [run.answer(f"{sampling} {index}") for index in range(len(prompts))] == answers


def test_a_prefix_hit_changes_nothing(runner, expected):
    run = runner.run(ALL_DRAFTERS)
    some = expected.first(8)
    for name in ("cold", "warm"):
        num_hits_before = run.engine.stats().num_prefix_hit_tokens
        result = Trial(run, "greedy", some, name).live()
        _logger.info(result.summary)
        result.check()
    num_hits = run.engine.stats().num_prefix_hit_tokens - num_hits_before
    assert num_hits >= sum((len(prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE for prompt in some.prompts)
