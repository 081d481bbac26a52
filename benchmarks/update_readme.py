"""Measures the default pair and rewrites the table in README.md; `make bench` runs it.

    update_readme.py [--model NAME] [--limit N] [--max-tokens N] [--from-results]

The numbers, with their provenance, are kept in benchmarks/results/bench.json. `--from-results` only writes the table
from that file.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from paceline.checkpoint import DEFAULT_MODEL_NAME
from paceline.config import EngineConfig
from paceline.operations.bench import Bench, Summary, markdown_table, summarize
from paceline.operations.workload import read_tasks

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results" / "bench.json"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def measure(model: str, limit: int | None, max_tokens: int | None) -> dict[str, object]:
    """Runs the benchmark and returns the results to keep."""
    bench = Bench.load(EngineConfig(model=model))
    measurements = []
    for measurement in bench.measure(read_tasks(limit_per_kind=limit), max_tokens=max_tokens):
        rate = measurement.decode_tokens_per_s or 0.0
        print(f"{measurement.task_id} {measurement.mode}: {rate:.1f} tokens/s", file=sys.stderr)
        measurements.append(measurement)
    return {
        "provenance": dataclasses.asdict(bench.provenance()),
        "max_tokens": max_tokens,
        "summaries": [dataclasses.asdict(summary) for summary in summarize(measurements)],
        "measurements": [dataclasses.asdict(measurement) for measurement in measurements],
    }


def render(report: dict[str, Any]) -> str:
    """Returns the lines between the markers."""
    provenance = report["provenance"]
    summaries = [Summary(**summary) for summary in report["summaries"]]
    plain = next(summary for summary in summaries if summary.task is None)
    draft = f", drafted for by {provenance['draft']['name']}" if provenance["draft"] else ""
    equal = "equal to" if all(summary.is_text_equal for summary in summaries) else "NOT EQUAL to"
    return "\n".join(
        [
            f"Decoded tokens per second of {provenance['target']['name']}{draft}: greedy, one request at a time, "
            f"{plain.num_tasks} tasks, {plain.num_tokens} tokens in each column; in brackets the speed-up over plain "
            f"decoding and the tokens committed in a step. Every text was {equal} plain decoding's.",
            "",
            markdown_table(summaries),
            "",
            f"{provenance['cpu']}, {provenance['num_cores']} cores, {provenance['num_threads']} threads, "
            f"{provenance['instruction_set']}; {provenance['date'][:10]}, paceline {provenance['paceline_version']} "
            f"({provenance['commit']}). Made by `make bench`; all numbers are in benchmarks/results/bench.json.",
        ]
    )


def replace_table(text: str, table: str) -> str:
    """Returns the README with the lines between the markers replaced. Raises ValueError if a marker is missing."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> None:
    """Measures, keeps the results and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL_NAME)
    parser.add_argument("--limit", type=int, default=1, help="tasks of each kind")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--from-results", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if not options.from_results:
        report = measure(options.model, options.limit, options.max_tokens)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    table = render(json.loads(RESULTS.read_text(encoding="utf-8")))
    README.write_text(replace_table(README.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
