"""`paceline bench MODEL`: measures plain decoding and each drafter on this machine."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.options import JsonOption, limit_options, model_options, takes_settings
from paceline.config import Settings

if TYPE_CHECKING:
    from paceline.operations.bench import Measurement

TasksOption = Annotated[Path | None, typer.Option(help="JSON lines of id, task, messages and max_tokens.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Most tasks of each kind; default: all.")]
CapOption = Annotated[int | None, typer.Option(min=1, help="Most tokens of an answer; default: each task's own.")]


@takes_settings(model_options, limit_options)
def bench(
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
    bench = Bench.load(settings.engine)
    measurements: list[Measurement] = []
    for measurement in bench.measure(workload, max_tokens=max_tokens):
        typer.echo(_describe(measurement), err=True)
        measurements.append(measurement)
    summaries = summarize(measurements)
    if not is_json:
        typer.echo(markdown_table(summaries))
        return
    report = {
        "provenance": dataclasses.asdict(bench.provenance()),
        "summaries": [dataclasses.asdict(summary) for summary in summaries],
        "measurements": [dataclasses.asdict(measurement) for measurement in measurements],
    }
    typer.echo(json.dumps(report, indent=2))


def _describe(measurement: Measurement) -> str:
    rate = measurement.decode_tokens_per_s or 0.0
    text = "" if measurement.is_text_equal else ", ANOTHER TEXT THAN PLAIN DECODING"
    return (
        f"{measurement.task_id} {measurement.mode}: {rate:.1f} tokens/s, first token after "
        f"{measurement.time_to_first_token_s:.2f} s, {measurement.num_tokens} tokens in {measurement.num_steps} steps"
        f"{text}"
    )
