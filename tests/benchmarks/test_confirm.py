"""A confirmation runs the settings that the simulation ranked, on the prompts that were recorded."""

from __future__ import annotations

from laboratory.confirm import confirm, settings_to_confirm
from laboratory.simulate import Replay, Simulation, replay_all
from laboratory.trace_recorder import Recorder

from paceline.config import EngineConfig
from paceline.operations.workload import Task


def replay(setting: str, seconds: float, task: str | None = None) -> Replay:
    return Replay(
        setting=setting, task=task, num_tokens=100, num_steps=50, seconds=seconds, wasted_share=0.0, lost_share=0.0
    )


def test_best_automatic_and_worst_come_first() -> None:
    replays = [replay("a 1", 0.1, "x"), replay("plain", 1.0), replay("a 1", 5.0), replay("a 2", 3.0)]
    replays += [replay("a 3", 4.0), replay("auto", 2.0)]
    assert settings_to_confirm(replays, 3) == ["a 2", "auto", "a 1"]
    assert settings_to_confirm(replays, 9) == ["a 2", "auto", "a 1", "a 3"]
    assert settings_to_confirm(replays, 0) == []


def test_predictions_stand_beside_measurements(tiny_pair) -> None:
    config = EngineConfig(model=str(tiny_pair.target), draft_model=str(tiny_pair.draft), context_window_size=512)
    tasks = [
        Task("copy-1", "copy", [{"role": "user", "content": "abc abc abc abc"}], 30),
        Task("talk-1", "talk", [{"role": "user", "content": "hello"}], 1),
    ]
    recorder = Recorder.load(config)
    trace = recorder.record(tasks)
    replays = list(replay_all(trace, trace.costs))
    names = ["draft-model 3", "auto"]
    settings = [setting for setting in Simulation(trace, trace.costs).settings() if setting.name in names]
    found = confirm(recorder, settings, replays, tasks)
    assert [confirmation.setting for confirmation in found] == ["plain", "draft-model 3", "auto"]
    assert all(confirmation.is_text_equal for confirmation in found)
    [plain, drafted, _] = found
    assert (plain.predicted_speed_up, plain.measured_speed_up, plain.error) == (1.0, 1.0, 0.0)
    [predicted] = [replay for replay in replays if replay.task is None and replay.setting == "draft-model 3"]
    assert drafted.predicted_s == predicted.seconds
    assert drafted.measured_speed_up == plain.measured_s / drafted.measured_s
