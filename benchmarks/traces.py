"""Records what drafters propose for plain answers, and replays the records with any costs.

traces.py record MODEL --output TRACE [--confirm 3]
traces.py simulate TRACE [--costs JSON] [--streams 4] [--json]
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from laboratory.command_line import run
from laboratory.confirm import Confirmation, settings_to_confirm
from laboratory.confirm import confirm as confirm_settings
from laboratory.simulate import Regret, Replay, Simulation, regrets, replay_all
from laboratory.trace import read_costs, read_trace
from laboratory.trace_recorder import Recorder

from paceline.cli.bench_options import CapOption, KindsOption, LimitOption, TasksOption, split
from paceline.cli.model_files import pull_chat_models
from paceline.cli.options import JsonOption, draft_options, model_options, takes_settings
from paceline.config import Settings
from paceline.core.errors import UsageError
from paceline.operations.workload import read_tasks

TraceOption = Annotated[Path, typer.Option(help="File to write the trace to.")]
ConfirmOption = Annotated[
    int,
    typer.Option(min=0, help="Settings to run for real: the best fixed one, auto, the worst, the next best; 0: none."),
]
TraceArgument = Annotated[Path, typer.Argument(help="A trace that `record` wrote.")]
CostsOption = Annotated[Path | None, typer.Option(help="JSON of a cost model; default: the recording machine's.")]
StreamsOption = Annotated[int, typer.Option(min=1, help="Answers at a time.")]

_REGRET_ROW = "{:<10} {:>8} {:>6} {:>6}  {:<16} {:>7} {:>7} {:>7}"
_REGRET_HEADER = ("task", "plain/s", "auto", "best", "fixed setting", "regret", "wasted", "lost")
_CONFIRMATION_ROW = "{:<16} {:>9} {:>9}  {:>9} {:>9} {:>7}"
_CONFIRMATION_HEADER = ("setting", "predicted", "measured", "speed-up", "measured", "error")


@takes_settings(model_options, draft_options)
def record(
    settings: Settings,
    output: TraceOption,
    tasks: TasksOption = None,
    kinds: KindsOption = None,
    limit: LimitOption = None,
    max_tokens: CapOption = None,
    confirm: ConfirmOption = 3,
    is_json: JsonOption = False,
) -> None:
    """Keep every drafter's proposals at every position of the plain answers, simulate all settings on them, and run
    some for real; minutes with a draft model."""
    workload = read_tasks(tasks, limit_per_kind=limit, only=split(kinds, str, "--kinds"))
    _check_can_write(output)
    pull_chat_models(settings.engine, workload)
    recorder = Recorder.load(settings.engine)
    trace = recorder.record(workload, max_tokens=max_tokens)
    output.write_bytes(msgspec.json.encode(trace))
    num_tokens = sum(len(prompt.token_ids) for prompt in trace.prompts)
    typer.echo(f"recorded {len(trace.prompts)} answers of {num_tokens} tokens in {output}", err=True)
    if confirm == 0 or not trace.prompts or not recorder.pair.drafter_names:
        return
    replays = list(replay_all(trace, trace.costs))
    names = settings_to_confirm(replays, confirm)
    chosen = [setting for setting in Simulation(trace, trace.costs).settings() if setting.name in names]
    confirmations = confirm_settings(recorder, chosen, replays, workload, max_tokens=max_tokens)
    if is_json:
        report = _simulation_report(replays, regrets(replays))
        report["confirmations"] = [dataclasses.asdict(found) | {"error": found.error} for found in confirmations]
        typer.echo(json.dumps(report, indent=2))
        return
    _print_regrets(regrets(replays))
    typer.echo("\n".join(["", _CONFIRMATION_ROW.format(*_CONFIRMATION_HEADER), *map(_describe, confirmations)]))


def simulate(
    trace: TraceArgument, costs: CostsOption = None, streams: StreamsOption = 1, is_json: JsonOption = False
) -> None:
    """Replay a trace under a cost model: automatic mode against plain decoding and every fixed setting."""
    recorded = read_trace(trace)
    model = recorded.costs if costs is None else read_costs(costs)
    replays = list(replay_all(recorded, model, num_streams=streams))
    if is_json:
        typer.echo(json.dumps(_simulation_report(replays, regrets(replays)), indent=2))
        return
    _print_regrets(regrets(replays))


def _check_can_write(path: Path) -> None:
    """Raises UsageError, before anything is measured, if the output file cannot be written."""
    target = path if path.exists() else path.parent
    if path.is_dir() or not os.access(target, os.W_OK):
        raise UsageError(f"cannot write --output {path}; name a file in a folder that exists and is yours")


def _simulation_report(replays: list[Replay], results: list[Regret]) -> dict[str, object]:
    return {
        "regrets": [dataclasses.asdict(result) | {"regret": result.regret} for result in results],
        "replays": [dataclasses.asdict(replay) | {"tokens_per_s": replay.tokens_per_s} for replay in replays],
    }


def _print_regrets(results: list[Regret]) -> None:
    typer.echo(_REGRET_ROW.format(*_REGRET_HEADER))
    for regret in results:
        typer.echo(_describe_regret(regret))


def _describe_regret(regret: Regret) -> str:
    return _REGRET_ROW.format(
        regret.task or "all",
        f"{regret.plain_tokens_per_s:.1f}",
        f"{regret.auto_speed_up:.2f}x",
        f"{regret.best_fixed_speed_up:.2f}x",
        regret.best_fixed,
        f"{100 * regret.regret:.1f} %",
        f"{100 * regret.wasted_share:.1f} %",
        f"{100 * regret.lost_share:.1f} %",
    )


def _describe(confirmation: Confirmation) -> str:
    row = _CONFIRMATION_ROW.format(
        confirmation.setting,
        f"{confirmation.predicted_s:.2f} s",
        f"{confirmation.measured_s:.2f} s",
        f"{confirmation.predicted_speed_up:.2f}x",
        f"{confirmation.measured_speed_up:.2f}x",
        f"{100 * confirmation.error:+.1f} %",
    )
    return row if confirmation.is_text_equal else f"{row}  ANOTHER TEXT"


if __name__ == "__main__":
    run(record, simulate)
