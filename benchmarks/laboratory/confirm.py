"""Compares a simulation with real runs of fixed settings and automatic mode on the recorded prompts.

The prediction uses only recorded proposals and measured step costs. If the machine is slower during the runs than when
the costs were measured, this affects all settings alike. Therefore compare the ratios to plain decoding. Nothing here
prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laboratory.simulate import Replay, Setting
from laboratory.trace_recorder import Recorder
from paceline.operations.bench import Bench, Mode, auto_mode
from paceline.operations.workload import AUTO, PLAIN, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """One setting on all prompts: predicted and measured seconds from the first token to the last, and speed-ups over
    plain decoding."""

    setting: str
    predicted_s: float
    measured_s: float
    predicted_speed_up: float
    measured_speed_up: float
    is_text_equal: bool

    @property
    def error(self) -> float:
        """The measured speed-up divided by the predicted one, minus 1."""
        return self.measured_speed_up / self.predicted_speed_up - 1.0


def settings_to_confirm(replays: Sequence[Replay], count: int) -> list[str]:
    """Returns at most `count` settings: the best fixed one over all tasks, automatic, the worst, then the next best."""
    fixed = [replay for replay in replays if replay.task is None and replay.setting not in (PLAIN, AUTO)]
    ordered = [replay.setting for replay in sorted(fixed, key=lambda replay: -replay.tokens_per_s)]
    return list(dict.fromkeys([*ordered[:1], AUTO, *ordered[-1:], *ordered[1:]]))[:count]


def confirm(
    recorder: Recorder,
    settings: Sequence[Setting],
    replays: Sequence[Replay],
    tasks: Sequence[Task],
    *,
    max_tokens: int | None = None,
) -> list[Confirmation]:
    """Runs plain decoding and the settings in turn on each prompt. `replays` are simulations of the same prompts.

    Automatic mode starts without knowledge, as in the simulation. Blocks until all runs have ended.
    """
    modes = [Mode(PLAIN), *(_mode(recorder, setting) for setting in settings if setting.name != PLAIN)]
    bench = Bench(recorder.config, recorder.pair, tuple(modes))
    measurements = [m for m in bench.measure(tasks, max_tokens=max_tokens) if m.num_tokens > 1]
    measured_s = {mode.name: sum(m.decode_s for m in measurements if m.mode == mode.name) for mode in modes}
    predicted_s = {replay.setting: replay.seconds for replay in replays if replay.task is None}
    return [
        Confirmation(
            setting=mode.name,
            predicted_s=predicted_s[mode.name],
            measured_s=measured_s[mode.name],
            predicted_speed_up=predicted_s[PLAIN] / predicted_s[mode.name],
            measured_speed_up=measured_s[PLAIN] / measured_s[mode.name],
            is_text_equal=all(m.is_text_equal for m in measurements if m.mode == mode.name),
        )
        for mode in modes
    ]


def _mode(recorder: Recorder, setting: Setting) -> Mode:
    if setting.is_auto:
        return auto_mode(recorder.config, recorder.pair)
    return Mode(setting.name, (_drafter_name(recorder, setting),), setting.window)


def _drafter_name(recorder: Recorder, setting: Setting) -> str:
    [name] = [name for name in recorder.pair.drafter_names if name == setting.drafter]
    return name
