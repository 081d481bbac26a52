"""Tests the promise: tokens, text, finish reasons and bits of log-probabilities do not depend on drafts or caches."""

from __future__ import annotations

import random

import numpy as np
import pytest
from msgspec import structs

from paceline.backends.protocol import Model
from paceline.controller.cost_model import DrafterCosts, RowTable, StepCosts
from paceline.core import (
    Batch,
    Draft,
    FinishReason,
    Float32Array,
    Request,
    SamplingParams,
    SpeculationMode,
    SpeculationParams,
)
from paceline.drafters.chains.growing_draft import GrowingDraft
from paceline.drafters.ngram import NgramDrafter
from paceline.drafters.protocol import Drafter
from paceline.drafters.suffix.drafter import SuffixDrafter
from paceline.engine.batch_builder import compaction_moves
from tests.engine.engine_factory import EngineFactory, answer, request, run, token_ids
from tests.engine.scripted_drafters import PartlyRightDrafter, RightDrafter, TreeDrafter, WrongDrafter

SAMPLINGS = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.8, "top_p": 0.95, "seed": 1234},
    "penalized": {"temperature": 0.7, "top_k": 20, "repetition_penalty": 1.2, "frequency_penalty": 0.4, "seed": 5},
}


def _draft_costs(depth_s: float) -> dict[str, DrafterCosts]:
    depth = RowTable((1, 8), (depth_s, 2 * depth_s))
    return {"draft-model": DrafterCosts(depth, depth_s / 10), "shared-layers": DrafterCosts(depth, 0.0)}


BROKEN_RUN = SamplingParams(temperature=0.8, seed=4, max_tokens=24, ignore_eos=True)


def prompts(seed: int, count: int, vocab_size: int = 256) -> list[list[int]]:
    """Returns prompts of mixed lengths: some begin alike, for the prefix cache, some repeat themselves, for n-grams."""
    generator = random.Random(seed)
    shared = [generator.randrange(32, 127) for _ in range(40)]
    result = []
    for index in range(count):
        own = [generator.randrange(32, 127) for _ in range(generator.choice([1, 3, 17, 33, 50]))]
        result.append([shared[:36] + own, own, own * 2][index % 3])
    return result


def mixed_requests(sampling: dict[str, object]) -> list[object]:
    """Returns six requests that end in different ways."""
    texts = prompts(1, 6)
    endings = [
        {"max_tokens": 40},
        {"max_tokens": 23, "stop": ("e", "qz")},
        {"max_tokens": 37, "num_logprobs": 2},
        {"max_tokens": 31, "stop_token_ids": (101, 110), "min_tokens": 9},
        {"max_tokens": 1},
        {"max_tokens": 29, "stop": (" the", "th", "\n\n"), "include_stop_in_output": True},
    ]
    merged = [sampling | {"num_logprobs": 0} | ending for ending in endings]
    return [request(f"r{i}", text, **options) for i, (text, options) in enumerate(zip(texts, merged, strict=True))]


def answers_of(engine, requests):
    for item in requests:
        engine.add(item)
    return {request_id: answer(outputs) for request_id, outputs in run(engine).items()}


class Plain:
    """The answers of plain decoding to `mixed_requests`, one at a time. `futures` has the tokens of the same prompts
    without any stop condition."""

    def __init__(self, engines: EngineFactory, sampling: dict[str, object]) -> None:
        self.sampling = sampling
        self.requests = mixed_requests(sampling)
        self.answers: dict[str, tuple[object, ...]] = {}
        self.futures: dict[tuple[int, ...], list[int]] = {}
        engine = engines.make(window=0, has_prefix_cache=False, max_batch_size=1)
        for item in self.requests:
            self.answers |= answers_of(engine, [item])
            endless = request(item.request_id, item.prompt_token_ids, **sampling, max_tokens=70, ignore_eos=True)
            self.futures[tuple(item.prompt_token_ids)] = answers_of(engine, [endless])[item.request_id][0]


@pytest.fixture(scope="module", params=SAMPLINGS)
def plain(request: pytest.FixtureRequest, engines: EngineFactory) -> Plain:
    return Plain(engines, SAMPLINGS[request.param])


def test_plain_decoding_ends_in_every_way(plain):
    reasons = {answer[2:4] for answer in plain.answers.values()}
    assert (FinishReason.LENGTH, None) in reasons
    assert any(reason is FinishReason.STOP for reason, _ in reasons)


def test_plain_batches_say_the_same(engines, plain):
    engine = engines.make(window=0, max_batch_size=4)
    assert answers_of(engine, plain.requests) == plain.answers
    assert engine.stats().num_draft_tokens == 0


@pytest.mark.parametrize("window", [1, 2, 5, 16])
@pytest.mark.parametrize("drafter_type", [WrongDrafter, RightDrafter, PartlyRightDrafter, TreeDrafter])
def test_scripted_drafts_change_nothing(engines, plain, drafter_type, window):
    drafter = drafter_type(plain.futures, engines.vocab_size, seed=window)
    engine = engines.make([drafter], window=window, max_batch_size=4)
    assert answers_of(engine, plain.requests) == plain.answers
    assert drafter.lengths == {}
    stats = engine.stats()
    assert stats.num_draft_tokens > 0
    if drafter_type is WrongDrafter:
        assert stats.num_accepted_tokens == 0
    else:
        assert stats.num_accepted_tokens > 0


def make_suffix_trees() -> Drafter:
    """Returns a suffix drafter whose drafts have branches and keep unlikely nodes."""
    return SuffixDrafter(store_size=2000, min_survival=0.01, has_branches=True)


@pytest.mark.parametrize("window", [1, 3, 7, 16])
@pytest.mark.parametrize("make_drafter", [NgramDrafter, SuffixDrafter, make_suffix_trees])
def test_real_drafters_change_nothing(engines, plain, make_drafter, window):
    engine = engines.make([make_drafter()], window=window, has_draft_model=True, max_batch_size=3)
    assert answers_of(engine, plain.requests) == plain.answers
    assert engine.stats().num_accepted_tokens > 0


COSTS = {
    "cheap rows": StepCosts(RowTable((1, 64), (1.0, 1.1)), _draft_costs(0.01)),
    "jumps": StepCosts(
        RowTable((1, 4, 5, 8, 9, 32), (1.0, 1.05, 1.4, 1.45, 2.0, 4.0), 1e-5, 1e-5),
        _draft_costs(0.1),
    ),
    "dear rows": StepCosts(RowTable((1, 2), (1.0, 1.6)), _draft_costs(0.5)),
}


@pytest.mark.parametrize("window", [1, 3, 7, 16])
@pytest.mark.parametrize("shared_layers", [1, 2])
def test_the_targets_first_layers_change_nothing(engines, plain, shared_layers, window):
    engine = engines.make(shared_layers=shared_layers, window=window, max_batch_size=3)
    num_resumed_before = engines.target.num_resumed_rows
    assert answers_of(engine, plain.requests) == plain.answers
    stats = engine.stats()
    assert engines.target.num_resumed_rows - num_resumed_before == stats.num_draft_tokens
    assert engine.drafter_names == ("shared-layers",)
    assert 0 < stats.num_accepted_tokens < stats.num_draft_tokens


@pytest.mark.parametrize("costs", [None, COSTS["cheap rows"]], ids=["fixed", "automatic"])
def test_requests_choose_among_drafters_that_run_models(engines, plain, costs):
    """Two drafters draft in the same step, each for the requests that chose it."""
    engine = engines.make(has_draft_model=True, shared_layers=2, window=5, max_batch_size=4, costs=costs)
    names = {}
    for index, item in enumerate(plain.requests):
        names[item.request_id] = ["shared-layers", "draft-model"][index % 2]
        engine.add(structs.replace(item, speculation=SpeculationParams(drafters=(names[item.request_id],))))
    outputs = run(engine)
    assert {name: answer(own) for name, own in outputs.items()} == plain.answers
    drafted = {name: set(own[-1].speculation.by_drafter) for name, own in outputs.items()}
    assert all(drafters <= {names[name]} for name, drafters in drafted.items())
    assert set().union(*drafted.values()) == {"shared-layers", "draft-model"}


def test_preemption_with_the_targets_first_layers_changes_nothing(engines, plain):
    engine = engines.make(shared_layers=2, window=6, num_blocks=11, context_window_size=176, max_batch_size=4)
    endless = {**plain.sampling, "max_tokens": 70, "ignore_eos": True}
    answers = answers_of(engine, [request(str(i), prompt, **endless) for i, prompt in enumerate(plain.futures)])
    assert [answers[str(i)][0] for i in range(len(answers))] == list(plain.futures.values())
    stats = engine.stats()
    assert stats.num_preemptions > 0
    assert stats.num_accepted_tokens > 0
    assert engine.drafter_names == ("shared-layers",)


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS.keys())
@pytest.mark.parametrize("drafter_type", [WrongDrafter, PartlyRightDrafter, TreeDrafter])
def test_automatic_mode_changes_nothing(engines, plain, drafter_type, costs):
    drafter = drafter_type(plain.futures, engines.vocab_size, seed=4)
    drafters = [drafter, NgramDrafter(), make_suffix_trees()]
    engine = engines.make(drafters, window=16, has_draft_model=True, shared_layers=2, max_batch_size=4, costs=costs)
    assert answers_of(engine, plain.requests) == plain.answers
    assert drafter.lengths == {}
    if costs is COSTS["cheap rows"]:
        assert engine.stats().num_accepted_tokens > 0


@pytest.mark.parametrize("drafter", [{"has_draft_model": True}, {"shared_layers": 2}], ids=["draft-model", "shared"])
@pytest.mark.parametrize("max_batch_size", [1, 3])
def test_automatic_mode_with_one_drafter_saves_steps(engines, plain, max_batch_size, drafter):
    engine = engines.make(**drafter, window=16, max_batch_size=max_batch_size, costs=COSTS["cheap rows"])
    assert answers_of(engine, plain.requests) == plain.answers
    assert engine.stats().num_accepted_tokens > 20


def test_a_draft_models_branches_change_nothing(engines, plain, monkeypatch):
    drafts, moves = [], []

    def finish(growing: GrowingDraft, drafter: str) -> Draft:
        drafts.append(finish_draft(growing, drafter))
        return drafts[-1]

    def collect(*args: object) -> list[tuple[int, int]]:
        moves.append(compaction_moves(*args))
        return moves[-1]

    finish_draft = GrowingDraft.finish
    monkeypatch.setattr(GrowingDraft, "finish", finish)
    monkeypatch.setattr("paceline.engine.step.compaction_moves", collect)
    engine = engines.make(has_draft_model=True, window=16, max_batch_size=3, costs=COSTS["cheap rows"])
    assert answers_of(engine, plain.requests) == plain.answers
    assert any(not draft.is_chain for draft in drafts)
    assert any(moves)  # some branches were accepted


def test_drafts_from_what_others_said_change_nothing(engines, plain):
    """The store is empty at first. Later it has the same texts, and other texts for the same prompts."""
    engine = engines.make([make_suffix_trees()], window=7, max_batch_size=3)
    assert answers_of(engine, plain.requests) == plain.answers
    num_accepted_cold = engine.stats().num_accepted_tokens
    misleading = {"temperature": 1.2, "seed": 99, "max_tokens": 60, "ignore_eos": True}
    answers_of(engine, [request(item.request_id, item.prompt_token_ids, **misleading) for item in plain.requests])
    num_accepted_before = engine.stats().num_accepted_tokens
    assert answers_of(engine, plain.requests) == plain.answers
    assert engine.stats().num_accepted_tokens - num_accepted_before > num_accepted_cold


def test_preemption_with_suffix_drafts_changes_nothing(engines, plain):
    engine = engines.make([make_suffix_trees()], window=6, num_blocks=11, context_window_size=176, max_batch_size=4)
    endless = {**plain.sampling, "max_tokens": 70, "ignore_eos": True}
    answers = answers_of(engine, [request(str(i), prompt, **endless) for i, prompt in enumerate(plain.futures)])
    assert [answers[str(i)][0] for i in range(len(answers))] == list(plain.futures.values())
    stats = engine.stats()
    assert stats.num_preemptions > 0
    assert stats.num_draft_tokens > 0
    assert engine.drafter_names == ("suffix",)


def test_right_drafts_save_steps(engines, plain):
    drafter = RightDrafter(plain.futures, engines.vocab_size)
    engine = engines.make([drafter], window=7, max_batch_size=1)
    item = plain.requests[0]
    engine.add(item)
    speculation = run(engine)[item.request_id][-1].speculation
    assert speculation.num_steps == 1 + -(-39 // 8)
    assert speculation.by_drafter == {"right": (speculation.num_draft_tokens, speculation.num_accepted_tokens)}
    assert speculation.num_accepted_tokens == 40 - speculation.num_steps


def test_joins_aborts_and_preemption_change_nothing(engines, plain):
    drafter = TreeDrafter(plain.futures, engines.vocab_size, seed=3)
    engine = engines.make([drafter], window=6, num_blocks=10, context_window_size=144, max_batch_size=4)
    generator = random.Random(8)
    waiting = [
        *plain.requests,
        *(
            request(f"gone{i}", item.prompt_token_ids, max_tokens=60, temperature=0.0)
            for i, item in enumerate(plain.requests[:3])
        ),
    ]
    generator.shuffle(waiting)
    outputs: dict[str, list[object]] = {}
    num_steps = 0
    while waiting or engine.has_unfinished:
        if waiting and generator.random() < 0.4:
            engine.add(waiting.pop())
        if num_steps % 9 == 8:
            engine.abort(f"gone{generator.randrange(3)}")
        for output in engine.step():
            outputs.setdefault(output.request_id, []).append(output)
        engine.check_integrity()
        num_steps += 1
    assert engine.stats().num_preemptions > 0
    assert drafter.lengths == {}
    assert {name: answer(outputs[name]) for name in plain.answers} == plain.answers
    assert all(outputs[f"gone{i}"][-1].finish_reason is not None for i in range(3))


def test_a_warm_prefix_cache_changes_nothing(engines, plain):
    engine = engines.make([NgramDrafter()], window=4, max_batch_size=2)
    cold = answers_of(engine, plain.requests)
    hits = engine.stats().num_prefix_hit_tokens
    warm = answers_of(engine, plain.requests)
    assert engine.stats().num_prefix_hit_tokens > hits
    assert cold == warm == plain.answers
    engine.clear_prefix_cache()
    assert answers_of(engine, plain.requests) == plain.answers


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks_of_the_prompt_change_nothing(engines, plain, chunk):
    engine = engines.make(window=0, prefill_chunk_size=chunk, max_batch_size=6)
    assert answers_of(engine, plain.requests) == plain.answers


def test_a_request_may_decline_or_limit_speculation(engines, plain):
    drafter = RightDrafter(plain.futures, engines.vocab_size)
    engine = engines.make([drafter], window=7)
    first, second = plain.requests[0], plain.requests[2]
    engine.add(request("off", first.prompt_token_ids, SpeculationParams(mode=SpeculationMode.OFF), max_tokens=30))
    engine.add(request("two", second.prompt_token_ids, SpeculationParams(max_window=2), max_tokens=30, temperature=0.0))
    outputs = run(engine)
    assert outputs["off"][-1].speculation.num_draft_tokens == 0
    assert outputs["off"][-1].speculation.num_steps == 30
    assert max(len(output.token_ids) for output in outputs["two"]) <= 3


class BrokenModel:
    """The target, except that the row of logits after each `token_id` is NaN."""

    def __init__(self, model: Model, token_id: int) -> None:
        self._model = model
        self._token_id = token_id
        self.config = model.config
        self.kv = model.kv

    def forward(self, batch: Batch) -> Float32Array:
        logits = self._model.forward(batch)
        logits[batch.token_ids[batch.logit_rows] == self._token_id] = np.nan
        return logits


@pytest.mark.parametrize("drafter", [None, WrongDrafter, RightDrafter, PartlyRightDrafter, TreeDrafter])
def test_a_broken_row_ends_its_sequence_alone_and_loses_no_token(engines, drafter):
    texts = prompts(9, 3)
    plain = [engines.make(window=0).generate([text], BROKEN_RUN)[0].token_ids for text in texts]
    broken = next(token for token in plain[0][4:] if token not in {*plain[1], *plain[2], texts[1][-1], texts[2][-1]})
    drafters = [] if drafter is None else [drafter({tuple(t): p for t, p in zip(texts, plain, strict=True)}, 256)]
    engine = engines.make(drafters, target=BrokenModel(engines.target, broken))
    for index, text in enumerate(texts):
        engine.add(Request(request_id=f"r{index}", prompt_token_ids=text, sampling=BROKEN_RUN))
    outputs = run(engine)
    assert token_ids(outputs["r0"]) == plain[0][: plain[0].index(broken) + 1]
    assert outputs["r0"][-1].finish_reason is FinishReason.ERROR
    assert "NaN" in outputs["r0"][-1].error
    for index in (1, 2):
        assert token_ids(outputs[f"r{index}"]) == plain[index]
        assert (outputs[f"r{index}"][-1].finish_reason, outputs[f"r{index}"][-1].error) == (FinishReason.LENGTH, None)
