"""`paceline bench tasks`: measures plain decoding, each drafter with fixed windows, and automatic mode."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import typer

from paceline.cli.bench_options import BenchTemperatureOption, CapOption, KindsOption, LimitOption, TasksOption, split
from paceline.cli.options import JsonOption, draft_options, limit_options, model_options, takes_settings

if TYPE_CHECKING:
    from paceline.config import Settings
    from paceline.operations.bench import Measurement


@takes_settings(model_options, draft_options, limit_options)
def tasks_command(
    settings: Settings,
    tasks: TasksOption = None,
    kinds: KindsOption = None,
    limit: LimitOption = None,
    max_tokens: CapOption = None,
    temperature: BenchTemperatureOption = 0.0,
    is_json: JsonOption = False,
) -> None:
    """Measure tokens per second, time to first token and the gain from drafts, with one request at a time."""
    from paceline.cli.model_files import pull_chat_models
    from paceline.operations.bench import Bench, markdown_table, summarize
    from paceline.operations.workload import read_tasks

    workload = read_tasks(tasks, limit_per_kind=limit, only=split(kinds, str, "--kinds"))
    pull_chat_models(settings.engine, workload)
    bench = Bench.load(settings.engine)
    measurements: list[Measurement] = []
    for measurement in bench.measure(workload, max_tokens=max_tokens, temperature=temperature):
        typer.echo(_describe(measurement), err=True)
        measurements.append(measurement)
    summaries = summarize(measurements)
    if is_json:
        report = {
            "provenance": dataclasses.asdict(bench.provenance()),
            "temperature": temperature,
            "summaries": [dataclasses.asdict(summary) for summary in summaries],
            "measurements": [dataclasses.asdict(measurement) for measurement in measurements],
        }
        typer.echo(json.dumps(report, indent=2))
        return
    typer.echo(markdown_table(summaries))


def _describe(measurement: Measurement) -> str:
    rate = measurement.decode_tokens_per_s or 0.0
    text = "" if measurement.is_text_equal else ", TEXT DIFFERS FROM PLAIN DECODING"
    return (
        f"{measurement.task_id} {measurement.mode}: {rate:.1f} tokens/s, first token after "
        f"{measurement.time_to_first_token_s:.2f} s, {measurement.num_tokens} tokens in {measurement.num_steps} steps"
        f"{text}"
    )
