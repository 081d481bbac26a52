"""Compares automatic mode with plain decoding on long prompts, each pair in a process that has answered nothing before.

    long_prompts.py [--model NAME] [--pairs 5] [--max-tokens 128] [--only ID ...] [--json FILE]

For each prompt it prints the median, lowest and highest ratio of plain to automatic time, after the first token and for
the whole answer. The order within a pair alternates. It exits 1 if the texts differ.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from paceline.checkpoint import DEFAULT_MODEL_NAME
from paceline.config import EngineConfig
from paceline.operations.bench import Bench
from paceline.operations.workload import AUTO, PLAIN, paired_modes, read_tasks

TASKS = Path(__file__).parent / "workloads" / "long_tasks.jsonl"
CONTEXT_WINDOW_SIZE = 8192


def run_pair(model: str, task_id: str, number: int, max_tokens: int) -> dict[str, Any]:
    """Returns the measurements of both modes, by mode, and their provenance."""
    bench = Bench.load(EngineConfig(model=model, context_window_size=CONTEXT_WINDOW_SIZE), windows=())
    modes = {mode.name: mode for mode in bench.modes}
    [task] = [task for task in read_tasks(TASKS) if task.id == task_id]
    runs = {name: bench.measure_one(task, modes[name], max_tokens=max_tokens) for name in paired_modes(number)}
    return {
        "task": task_id,
        "is_text_equal": runs[PLAIN][0] == runs[AUTO][0],
        "provenance": dataclasses.asdict(bench.provenance()),
        **{name: dataclasses.asdict(measurement) for name, (_, measurement) in runs.items()},
    }


def in_new_process(model: str, task_id: str, number: int, max_tokens: int) -> dict[str, Any]:
    """Runs `run_pair` in a process of its own."""
    command = [sys.executable, __file__, "--model", model, "--max-tokens", str(max_tokens)]
    command += ["--one", task_id, str(number)]
    pair: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return pair


def ratios(pairs: list[dict[str, Any]], *, is_whole: bool) -> list[float]:
    """Returns plain over automatic time in each pair."""
    skipped = "time_to_first_token_s"
    times = [
        [pair[mode]["total_s"] - (0.0 if is_whole else pair[mode][skipped]) for mode in (PLAIN, AUTO)] for pair in pairs
    ]
    return [plain_s / auto_s for plain_s, auto_s in times]


def describe(pairs: list[dict[str, Any]]) -> str:
    """Returns one prompt's line."""
    later, whole = ratios(pairs, is_whole=False), ratios(pairs, is_whole=True)
    numbers = [f"{statistics.median(one):.3f} [{min(one):.3f}, {max(one):.3f}]" for one in (later, whole)]
    first = pairs[0][PLAIN]
    return f"{pairs[0]['task']:<22} {first['num_prompt_tokens']:>6} {first['num_tokens']:>6}   {'   '.join(numbers)}"


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL_NAME)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--only", nargs="+", help="identifiers of prompts")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(run_pair(options.model, options.one[0], int(options.one[1]), options.max_tokens)))
        return
    all_pairs: list[dict[str, Any]] = []
    print(f"{'prompt':<22} {'tokens':>6} {'answer':>6}   {'after first token':<20}   whole")
    for task in read_tasks(TASKS):
        if options.only is not None and task.id not in options.only:
            continue
        pairs = [in_new_process(options.model, task.id, number, options.max_tokens) for number in range(options.pairs)]
        print(describe(pairs), flush=True)
        all_pairs += pairs
    if options.json is not None:
        options.json.write_text(json.dumps(all_pairs, indent=2) + "\n")
    medians = [
        statistics.median(ratios([pair for pair in all_pairs if pair["task"] == name], is_whole=False))
        for name in dict.fromkeys(pair["task"] for pair in all_pairs)
    ]
    print(f"median of all prompts after the first token: {statistics.median(medians):.3f}")
    if not all(pair["is_text_equal"] for pair in all_pairs):
        sys.exit("the texts differ")


if __name__ == "__main__":
    main()
