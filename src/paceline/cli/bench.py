"""`paceline bench`: `tasks` measures on this machine, `record` keeps what drafters propose, `simulate` replays that.

`paceline bench MODEL` is short for `paceline bench tasks MODEL`.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from paceline.cli.options import JsonOption, limit_options, model_options, takes_settings
from paceline.config import Settings

if TYPE_CHECKING:
    from paceline.operations.bench import Measurement
    from paceline.operations.simulate import Regret, Replay

TasksOption = Annotated[Path | None, typer.Option(help="JSON lines of id, task, messages and max_tokens.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Most tasks of each kind; default: all.")]
CapOption = Annotated[int | None, typer.Option(min=1, help="Most tokens of an answer; default: each task's own.")]
TraceOption = Annotated[Path, typer.Option(help="File to write the trace to.")]
TraceArgument = Annotated[Path, typer.Argument(help="A trace that `paceline bench record` wrote.")]
CostsOption = Annotated[Path | None, typer.Option(help="JSON of a cost model; default: the recording machine's.")]
StreamsOption = Annotated[int, typer.Option(min=1, help="Answers at a time.")]

_REGRET_ROW = "{:<10} {:>8} {:>6} {:>6}  {:<16} {:>7} {:>7} {:>7}"
_REGRET_HEADER = ("task", "plain/s", "auto", "best", "fixed setting", "regret", "wasted", "lost")


class _DefaultsToTasks(TyperGroup):
    """A first word that is no command is the model of `tasks`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["tasks", *args]
        return super().parse_args(ctx, args)


bench = typer.Typer(cls=_DefaultsToTasks, no_args_is_help=True, help="Measure, record and simulate speculation.")


@bench.command("tasks")
@takes_settings(model_options, limit_options)
def tasks_command(
    settings: Settings,
    tasks: TasksOption = None,
    limit: LimitOption = None,
    max_tokens: CapOption = None,
    is_json: JsonOption = False,
) -> None:
    """Measure tokens per second, time to first token and what drafts bring, greedy, one request at a time."""
    from paceline.cli.model_files import pull_models
    from paceline.operations.bench import Bench, markdown_table, summarize
    from paceline.operations.workload import read_tasks

    workload = read_tasks(tasks, limit_per_kind=limit)
    pull_models(settings.engine)
    measured = Bench.load(settings.engine)
    measurements: list[Measurement] = []
    for measurement in measured.measure(workload, max_tokens=max_tokens):
        typer.echo(_describe(measurement), err=True)
        measurements.append(measurement)
    summaries = summarize(measurements)
    if not is_json:
        typer.echo(markdown_table(summaries))
        return
    report = {
        "provenance": dataclasses.asdict(measured.provenance()),
        "summaries": [dataclasses.asdict(summary) for summary in summaries],
        "measurements": [dataclasses.asdict(measurement) for measurement in measurements],
    }
    typer.echo(json.dumps(report, indent=2))


@bench.command("record")
@takes_settings(model_options)
def record_command(
    settings: Settings,
    output: TraceOption,
    tasks: TasksOption = None,
    limit: LimitOption = None,
    max_tokens: CapOption = None,
) -> None:
    """Keep every drafter's proposals at every position of the plain answers; minutes with a draft model."""
    import msgspec

    from paceline.cli.model_files import pull_models
    from paceline.operations.trace_recorder import Recorder
    from paceline.operations.workload import read_tasks

    workload = read_tasks(tasks, limit_per_kind=limit)
    pull_models(settings.engine)
    trace = Recorder.load(settings.engine).record(workload, max_tokens=max_tokens)
    output.write_bytes(msgspec.json.encode(trace))
    num_tokens = sum(len(prompt.token_ids) for prompt in trace.prompts)
    typer.echo(f"recorded {len(trace.prompts)} answers of {num_tokens} tokens in {output}", err=True)


@bench.command("simulate")
def simulate_command(
    trace: TraceArgument, costs: CostsOption = None, streams: StreamsOption = 1, is_json: JsonOption = False
) -> None:
    """Replay a trace under a cost model: automatic mode against plain decoding and every fixed setting."""
    from paceline.operations.simulate import regrets, replay_all
    from paceline.operations.trace import read_costs, read_trace

    recorded = read_trace(trace)
    model = recorded.costs if costs is None else read_costs(costs)
    replays = list(replay_all(recorded, model, num_streams=streams))
    if is_json:
        typer.echo(json.dumps(_simulation_report(replays, regrets(replays)), indent=2))
        return
    typer.echo(_REGRET_ROW.format(*_REGRET_HEADER))
    for regret in regrets(replays):
        typer.echo(_describe_regret(regret))


def _simulation_report(replays: list[Replay], results: list[Regret]) -> dict[str, object]:
    return {
        "regrets": [dataclasses.asdict(result) | {"regret": result.regret} for result in results],
        "replays": [dataclasses.asdict(replay) | {"tokens_per_s": replay.tokens_per_s} for replay in replays],
    }


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


def _describe(measurement: Measurement) -> str:
    rate = measurement.decode_tokens_per_s or 0.0
    text = "" if measurement.is_text_equal else ", ANOTHER TEXT THAN PLAIN DECODING"
    return (
        f"{measurement.task_id} {measurement.mode}: {rate:.1f} tokens/s, first token after "
        f"{measurement.time_to_first_token_s:.2f} s, {measurement.num_tokens} tokens in {measurement.num_steps} steps"
        f"{text}"
    )
