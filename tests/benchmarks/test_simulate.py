"""Replays made-up traces: automatic mode finds the drafts that pay, and costs next to nothing if none pays."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from laboratory.simulate import Replay, Setting, Simulation, regrets, replay_all
from laboratory.trace import PromptTrace, Proposal, Trace, read_costs, read_trace

from paceline.controller.cost_model import DrafterCosts, RowTable, StepCosts
from paceline.core import Draft
from paceline.core.errors import UsageError
from paceline.operations.workload import AUTO, PLAIN

CPU = StepCosts(
    RowTable((1, 4, 8, 16, 32), (0.040, 0.045, 0.065, 0.11, 0.2)),
    {"model": DrafterCosts(RowTable((1, 8), (0.008, 0.012)), 0.002)},
)
GPU = StepCosts(RowTable((1, 64), (0.020, 0.022)), {"model": DrafterCosts(RowTable((1, 64), (0.006, 0.0065)), 0.00002)})
DEAR_ROWS = StepCosts(
    RowTable((1, 2, 4, 8, 16, 32), (0.054, 0.058, 0.081, 0.121, 0.24, 0.53)),
    {"model": DrafterCosts(RowTable((1, 8), (0.0133, 0.0346)), 0.0033)},
)
NUM_TOKENS = 160


def proposal(generator: random.Random, future: list[int], acceptance: float, confidence: float | None) -> Proposal:
    """Returns a chain whose tokens are right with probability `acceptance`.

    With `confidence` None, confidences are random, and somewhat higher for right tokens than for wrong ones.
    """
    token_ids, confidences = [], []
    for token_id in future[:16]:
        is_right = generator.random() < acceptance
        token_ids.append(token_id if is_right else token_id + 1)
        confidences.append(confidence or generator.uniform(0.5, 1.0) * (1.0 if is_right else 0.7))
    return Proposal(token_ids, confidences)


def trace(drafters: dict[str, tuple[float, float | None]], made: list[str], num_prompts: int = 4) -> Trace:
    """Returns a trace with prompts of 60 tokens; `drafters` has the acceptance and the confidence of each drafter."""
    generator = random.Random(3)
    prompts = []
    for number in range(num_prompts):
        answer = [generator.randrange(1000) for _ in range(NUM_TOKENS)]
        proposals = {
            name: [proposal(generator, answer[position:], *how) for position in range(1, NUM_TOKENS)]
            for name, how in drafters.items()
        }
        prompts.append(
            PromptTrace(
                prompt_id=str(number), task="made up", num_prompt_tokens=60, token_ids=answer, proposals=proposals
            )
        )
    return Trace(target="t", draft="d", made_drafters=made, costs=CPU, prompts=prompts)


WINDOWS = (1, 3, 5, 7, 10)


def speed_ups(drafters: dict[str, tuple[float, float | None]], made: list[str], costs: StepCosts) -> dict[str, float]:
    """Returns the speed-up over plain decoding of automatic mode, and of every drafter with fixed windows."""
    whole = trace(drafters, made)
    simulation = Simulation(whole, costs)
    settings = [Setting(PLAIN), Setting(AUTO, is_auto=True)]
    settings += [Setting(f"{name} {window}", name, window) for name in drafters for window in WINDOWS]
    speeds = {setting.name: simulation.replay(setting, whole.prompts).tokens_per_s for setting in settings}
    return {name: speed / speeds[PLAIN] for name, speed in speeds.items()}


def test_plain_decoding_takes_a_step_a_token():
    simulation = Simulation(trace({"free": (0.5, 0.5)}, []), CPU)
    replay = simulation.replay(Setting(PLAIN), simulation._trace.prompts)
    assert (replay.num_tokens, replay.num_steps) == (4 * (NUM_TOKENS - 1),) * 2
    assert replay.seconds == pytest.approx(0.040 * replay.num_steps)
    assert replay.wasted_share == 0.0


def test_a_right_drafter_fills_every_window():
    simulation = Simulation(trace({"free": (1.0, 0.9)}, []), CPU)
    replay = simulation.replay(Setting("free 7", "free", 7), simulation._trace.prompts)
    assert replay.num_steps == 4 * -(-(NUM_TOKENS - 1) // 8)


@pytest.mark.parametrize("costs", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("confidence", [0.5, 1.0])
@pytest.mark.parametrize("made", [[], ["model"]])
def test_a_drafter_that_is_always_wrong_costs_next_to_nothing(confidence, made, costs):
    whole = trace({made[0] if made else "free": (0.0, confidence)}, made)
    simulation = Simulation(whole, costs)
    plain = simulation.replay(Setting(PLAIN), whole.prompts)
    auto = simulation.replay(Setting(AUTO, is_auto=True), whole.prompts)
    assert auto.tokens_per_s > 0.97 * plain.tokens_per_s
    assert auto.wasted_share == pytest.approx(1.0 - plain.seconds / auto.seconds, rel=0.02)
    assert auto.lost_share == pytest.approx(auto.wasted_share, rel=0.05)


@pytest.mark.parametrize("confidence", [0.02, 0.1, 0.2, 0.4])
def test_a_model_that_is_unsure_and_wrong_is_not_asked_for_ever(confidence):
    found = speed_ups({"free": (0.0, 0.9), "model": (0.0, confidence)}, ["model"], DEAR_ROWS)
    assert found[AUTO] > 0.95


@pytest.mark.parametrize("costs", [CPU, DEAR_ROWS, GPU])
@pytest.mark.parametrize("confidence", [0.2, 0.95])
def test_a_model_that_was_right_on_other_texts_and_is_wrong_now_costs_little(confidence, costs):
    right = trace({"model": (0.9, 0.95)}, ["model"], 8).prompts
    wrong = trace({"model": (0.0, confidence)}, ["model"], 1).prompts
    simulation = Simulation(trace({"model": (0.9, 0.95)}, ["model"]), costs)
    auto, plain = Setting(AUTO, is_auto=True), Setting(PLAIN)
    before_s, all_s = simulation.replay(auto, right).seconds, simulation.replay(auto, [*right, *wrong]).seconds
    prefill_s = 60 * costs.drafters["model"].missed_token_s
    assert all_s - before_s < 1.04 * simulation.replay(plain, wrong).seconds + prefill_s


@pytest.mark.parametrize("acceptance", [0.4, 0.7, 0.9])
@pytest.mark.parametrize("costs", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(("name", "confidence"), [("free", 0.8), ("model", None)])
def test_automatic_mode_is_near_the_best_fixed_window(name, confidence, costs, acceptance):
    found = speed_ups({name: (acceptance, confidence)}, ["model"], costs)
    assert found.pop(AUTO) > 0.93 * max(found.values())


def test_automatic_mode_joins_drafters_that_are_right_at_different_places():
    found = speed_ups({"free": (0.9, 0.9), "other": (0.2, 0.9), "model": (0.6, None)}, ["model"], CPU)
    assert found.pop(AUTO) > 0.93 * max(found.values())


def test_many_streams_share_a_step():
    simulation = Simulation(trace({"free": (0.8, 0.8), "model": (0.7, None)}, ["model"], 8), GPU, num_streams=8)
    prompts = simulation._trace.prompts
    plain, auto = (simulation.replay(Setting(name, is_auto=name == AUTO), prompts) for name in (PLAIN, AUTO))
    assert plain.num_steps == NUM_TOKENS - 1
    assert auto.num_tokens == plain.num_tokens
    assert auto.tokens_per_s > 1.5 * plain.tokens_per_s


def test_a_drafter_whose_reading_costs_nothing_has_nothing_to_read():
    """Such a drafter drafts from the first step on. A drafter that must read the prompt takes that much longer."""
    table = RowTable((1, 64), (0.006, 0.0065))
    seconds = {}
    for missed_token_s in (0.0, 0.001):
        costs = StepCosts(RowTable((1, 64), (0.020, 0.022)), {"model": DrafterCosts(table, missed_token_s)})
        whole = trace({"model": (1.0, 0.9)}, ["model"], 1)
        replay = Simulation(whole, costs).replay(Setting("model 7", "model", 7), whole.prompts)
        seconds[missed_token_s] = replay.seconds
        assert replay.num_steps == -(-(NUM_TOKENS - 1) // 8)
    assert seconds[0.0] < seconds[0.001] - 0.060


def test_trees_are_walked_and_kept():
    tree = Draft((5, 6, 7), (None, None, 1), (0.5, 0.6, 0.7), "free")
    kept = msgspec.json.decode(msgspec.json.encode(Proposal.of(tree)), type=Proposal)
    assert kept.draft("free") == tree
    prompt = PromptTrace(
        prompt_id="0", task="x", num_prompt_tokens=5, token_ids=[1, 6, 7, 8, 9], proposals={"free": [kept] * 4}
    )
    short = Trace(target="t", draft=None, made_drafters=[], costs=CPU, prompts=[prompt])
    replay = Simulation(short, GPU).replay(Setting("free 3", "free", 3), [prompt])
    assert (replay.num_tokens, replay.num_steps) == (4, 2)


def test_every_setting_is_replayed_on_every_task():
    whole = trace({"free": (0.5, 0.5)}, [], 1)
    replays = list(replay_all(whole, GPU))
    names = [setting.name for setting in Simulation(whole, GPU).settings()]
    assert [replay.setting for replay in replays] == names * 2
    assert [result.task for result in regrets(replays)] == ["made up", None]


def test_regret_is_against_the_best_fixed_setting():
    def replay(setting: str, seconds: float) -> Replay:
        return Replay(
            setting=setting, task=None, num_tokens=100, num_steps=50, seconds=seconds, wasted_share=0.01, lost_share=0.0
        )

    [result] = regrets([replay(PLAIN, 4.0), replay("free 3", 2.0), replay("free 7", 2.5), replay(AUTO, 2.5)])
    assert (result.best_fixed, result.best_fixed_speed_up, result.auto_speed_up) == ("free 3", 2.0, 1.6)
    assert result.regret == pytest.approx(0.2)


def test_files_are_read_and_refused(tmp_path: Path):
    whole = trace({"free": (0.5, 0.5)}, [], 1)
    path = tmp_path / "trace.json"
    path.write_bytes(msgspec.json.encode(whole))
    assert read_trace(path) == whole
    path.write_bytes(msgspec.json.encode(GPU))
    assert read_costs(path) == GPU
    with pytest.raises(UsageError, match="cannot be read"):
        read_trace(path)
    with pytest.raises(UsageError, match="there is no"):
        read_costs(tmp_path / "absent")
