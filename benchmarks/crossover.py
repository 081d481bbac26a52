"""Compares automatic mode with plain decoding for 1 to 32 answers at a time.

crossover.py MODEL [--streams 1,2,4] [--pairs 3] [--max-tokens 128] [--json]
"""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer
from laboratory.command_line import run
from laboratory.crossover import Crossover, CrossoverPoint, StreamsRun, crossover_points

from paceline.cli.bench_options import BenchTemperatureOption, CapOption, KindsOption, LimitOption, TasksOption, split
from paceline.cli.model_files import pull_chat_models
from paceline.cli.options import JsonOption, draft_options, limit_options, model_options, takes_settings
from paceline.config import Settings
from paceline.core.errors import UsageError
from paceline.operations.provenance import read_pair_provenance
from paceline.operations.workload import read_tasks

StreamsOption = Annotated[str, typer.Option(help="Numbers of streams, joined by commas.")]
PairsOption = Annotated[int, typer.Option(min=1, help="Runs of each mode for each number of streams.")]

_ROW = "{:>7} {:>9} {:>9} {:>7} {:>7} {:>7}"
_HEADER = ("streams", "plain/s", "auto/s", "ratio", "wasted", "lost")


@takes_settings(model_options, draft_options, limit_options)
def crossover(
    settings: Settings,
    streams: StreamsOption = "1,2,4,8,16,32",
    pairs: PairsOption = 1,
    tasks: TasksOption = None,
    kinds: KindsOption = None,
    limit: LimitOption = None,
    max_tokens: CapOption = None,
    temperature: BenchTemperatureOption = 0.0,
    is_json: JsonOption = False,
) -> None:
    """Measure tokens per second of 1 to 32 mixed answers at a time, plain and automatic in turns."""
    counts = split(streams, int, "--streams") or []
    if min(counts) < 1:
        raise UsageError(f"--streams {streams} is not understood; the least number of streams is 1")
    workload = read_tasks(tasks, limit_per_kind=limit, only=split(kinds, str, "--kinds"))
    pull_chat_models(settings.engine, workload)
    measured = Crossover(settings.engine, workload, num_streams=counts, max_tokens=max_tokens, temperature=temperature)
    runs: list[StreamsRun] = []
    for one in measured.measure(pairs):
        typer.echo(_describe_run(one), err=True)
        runs.append(one)
    points = crossover_points(runs)
    if is_json:
        report = {
            "provenance": dataclasses.asdict(read_pair_provenance(settings.engine, measured.pair)),
            "temperature": temperature,
            "points": [dataclasses.asdict(point) for point in points],
            "runs": [dataclasses.asdict(one) | {"tokens_per_s": one.tokens_per_s} for one in runs],
        }
        typer.echo(json.dumps(report, indent=2))
        return
    typer.echo("\n".join([_ROW.format(*_HEADER), *map(_describe_point, points)]))


def _describe_run(one: StreamsRun) -> str:
    text = "" if one.is_text_equal else ", OTHER TEXTS THAN BEFORE"
    return (
        f"{one.num_streams} streams {one.mode}: {one.tokens_per_s:.1f} tokens/s, {one.num_tokens} tokens in "
        f"{one.num_steps} steps{text}"
    )


def _describe_point(point: CrossoverPoint) -> str:
    row = _ROW.format(
        point.num_streams,
        f"{point.plain_tokens_per_s:.1f}",
        f"{point.auto_tokens_per_s:.1f}",
        f"{point.ratio:.3f}x",
        f"{100 * point.wasted_share:.1f} %",
        f"{100 * point.lost_share:.1f} %",
    )
    return row if point.is_text_equal else f"{row}  OTHER TEXTS"


if __name__ == "__main__":
    run(crossover)
