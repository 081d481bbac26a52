"""Recorded proposals equal what the drafters propose when they serve, at every position."""

from __future__ import annotations

from dataclasses import replace

import pytest
from laboratory.simulate import Setting, Simulation
from laboratory.trace import Trace
from laboratory.trace_recorder import MAX_WINDOW, Recorder

from paceline.config import EngineConfig
from paceline.core import Draft, Plan, Request, SamplingParams, Sequence
from paceline.drafters.protocol import Drafter, Proposals
from paceline.engine import Engine
from paceline.engine.assembly import build_parts
from paceline.operations.workload import AUTO, PLAIN, Task
from paceline.sampling.sequence_sampler import SequenceSampler
from tests.support.watched_drafter import WatchedDrafter

TASKS = [
    Task("copy-1", "copy", [{"role": "user", "content": "abc abc abc abc"}], 40),
    Task("talk-1", "talk", [{"role": "user", "content": "hello"}], 1),
]


@pytest.fixture(scope="module")
def recorder(tiny_pair) -> Recorder:
    config = EngineConfig(
        model=str(tiny_pair.target),
        draft_model=str(tiny_pair.draft),
        draft_vocab_size=None,
        shared_layers=2,
        context_window_size=512,
    )
    return Recorder.load(config)


@pytest.fixture(scope="module")
def trace(recorder: Recorder) -> Trace:
    return recorder.record(TASKS)


def test_a_trace_holds_the_plain_text_and_a_proposal_for_each_position(recorder: Recorder, trace: Trace) -> None:
    [prompt] = trace.prompts  # an answer of one token has no position
    assert (prompt.prompt_id, prompt.task, len(prompt.token_ids)) == ("copy-1", "copy", 40)
    numbers = {name: len(proposals) for name, proposals in prompt.proposals.items()}
    assert numbers == {"suffix": 39, "draft-model": 39, "shared-layers": 39}
    assert trace.made_drafters == ["shared-layers", "draft-model"]
    assert trace.costs.drafters["draft-model"].missed_token_s > 0.0
    assert trace.costs.drafters["shared-layers"].missed_token_s == 0.0
    assert trace.costs.target.rows[0] == 1
    engine = Engine.from_parts(recorder.config, build_parts(recorder.pair, recorder.config, (), 32))
    token_ids = engine.tokenizer.encode_chat(TASKS[0].messages)
    [completion] = engine.generate([token_ids], SamplingParams(max_tokens=40, temperature=0.0))
    assert completion.token_ids == prompt.token_ids


def test_chains_are_those_that_the_draft_model_draws_in_serving(recorder: Recorder, trace: Trace) -> None:
    [prompt] = trace.prompts
    parts = build_parts(recorder.pair, recorder.config, ("draft-model",), 32)
    engine = Engine.from_parts(recorder.config, parts)
    text = engine.tokenizer.encode_chat(TASKS[0].messages)
    sampling = SamplingParams(temperature=0.0)
    sequence = Sequence(Request(request_id="x", prompt_token_ids=list(text), sampling=sampling), 0, list(text))
    vocab_size = parts.target.config.vocab_size
    parts.samplers["x"] = SequenceSampler.begin(parts.sampler, sequence, vocab_size=vocab_size)
    [drafter] = parts.drafters
    drafter.begin(sequence)
    for token_id, expected in zip(prompt.token_ids, prompt.proposals["draft-model"], strict=False):
        sequence.token_ids.append(token_id)
        [draft] = drafter.propose([sequence], [Plan("draft-model", MAX_WINDOW)]).drafts
        size = len(expected.token_ids)
        assert size == len(draft) or size >= 7
        assert list(draft.token_ids[:size]) == expected.token_ids
        assert list(draft.confidences[:size]) == pytest.approx(expected.confidences, abs=0.001)


def test_chains_of_first_layers_are_those_that_they_draft_in_serving(recorder: Recorder, trace: Trace) -> None:
    [prompt] = trace.prompts
    config = recorder.config.model_copy(update={"num_speculative_tokens": MAX_WINDOW})
    parts = build_parts(recorder.pair, config, ("shared-layers",), 32)
    watched = Watched(parts.drafters[0])
    engine = Engine.from_parts(config, replace(parts, drafters=(watched,)))
    text = engine.tokenizer.encode_chat(TASKS[0].messages)
    [completion] = engine.generate([text], SamplingParams(max_tokens=40, temperature=0.0))
    assert completion.token_ids == prompt.token_ids
    for length, draft in watched.drafts.items():
        expected = prompt.proposals["shared-layers"][length - len(text) - 1]
        size = min(len(draft), len(expected.token_ids))
        assert size > 0
        assert list(draft.token_ids[:size]) == expected.token_ids[:size]
        assert list(draft.confidences[:size]) == pytest.approx(expected.confidences[:size], abs=0.001)
    assert len(watched.drafts) > 5


class Watched(WatchedDrafter):
    """A drafter that keeps its drafts, by the length of the text before them."""

    def __init__(self, drafter: Drafter) -> None:
        super().__init__(drafter)
        self.drafts: dict[int, Draft] = {}

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        proposals = super().propose(sequences, plans)
        [self.drafts[len(sequences[0].token_ids)]] = proposals.drafts
        return proposals


def test_a_recorded_trace_can_be_replayed(trace: Trace) -> None:
    simulation = Simulation(trace, trace.costs)
    replays = [
        simulation.replay(setting, trace.prompts)
        for setting in (
            Setting(PLAIN),
            Setting("draft-model 3", "draft-model", 3),
            Setting("shared-layers 3", "shared-layers", 3),
            Setting(AUTO, is_auto=True),
        )
    ]
    assert [replay.num_tokens for replay in replays] == [39] * 4
    assert replays[1].num_steps < replays[0].num_steps
    assert replays[2].num_steps < replays[0].num_steps
