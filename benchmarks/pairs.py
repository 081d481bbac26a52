"""Checks whether automatic mode is ever slower than plain decoding, by alternating pairs of runs on each prompt.

pairs.py MODEL [--pairs 7] [--kinds story,chat] [--max-tokens 64] [--json]
"""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer
from laboratory.command_line import run
from laboratory.pairs import PairCheck, check_pairs

from paceline.cli.bench_options import BenchTemperatureOption, CapOption, KindsOption, LimitOption, TasksOption, split
from paceline.cli.model_files import pull_chat_models
from paceline.cli.options import JsonOption, draft_options, limit_options, model_options, takes_settings
from paceline.config import Settings
from paceline.core.errors import UsageError
from paceline.operations.bench import Bench
from paceline.operations.workload import read_tasks

PairsOption = Annotated[int, typer.Option(min=1, help="Pairs of runs for each prompt.")]

_PAIR_ROW = "{:<14} {:>7} {:>7} {:>7} {:>7} {:>7}"
_PAIR_HEADER = ("prompt", "median", "lowest", "highest", "wasted", "lost")


@takes_settings(model_options, draft_options, limit_options)
def pairs(
    settings: Settings,
    pairs: PairsOption = 7,
    tasks: TasksOption = None,
    kinds: KindsOption = None,
    limit: LimitOption = None,
    max_tokens: CapOption = None,
    temperature: BenchTemperatureOption = 0.0,
    is_json: JsonOption = False,
) -> None:
    """Measure the ratio of automatic to plain speed on each prompt, in alternating runs."""
    workload = read_tasks(tasks, limit_per_kind=limit, only=split(kinds, str, "--kinds"))
    if not pull_chat_models(settings.engine, workload).drafter_names:
        raise UsageError("there is nothing to compare without drafters; leave --drafters and --speculation away")
    bench = Bench.load(settings.engine)
    checks: list[PairCheck] = []
    for check in check_pairs(bench, workload, pairs, max_tokens=max_tokens, temperature=temperature):
        typer.echo(_describe_pairs(check), err=True)
        checks.append(check)
    if is_json:
        report = {
            "provenance": dataclasses.asdict(bench.provenance()),
            "temperature": temperature,
            "pairs": [dataclasses.asdict(check) | {"median_ratio": check.median_ratio} for check in checks],
        }
        typer.echo(json.dumps(report, indent=2))
        return
    typer.echo("\n".join([_PAIR_ROW.format(*_PAIR_HEADER), *map(_describe_pairs, checks)]))


def _describe_pairs(check: PairCheck) -> str:
    ratios = (check.median_ratio, min(check.ratios), max(check.ratios))
    row = _PAIR_ROW.format(
        check.task_id,
        *(f"{ratio:.3f}x" for ratio in ratios),
        f"{100 * check.wasted_share:.1f} %",
        f"{100 * check.lost_share:.1f} %",
    )
    return row if check.is_text_equal else f"{row}  ANOTHER TEXT"


if __name__ == "__main__":
    run(pairs)
