"""Measures whole answers of Paceline and of llama.cpp, and rewrites the table in README.md; `make bench` runs it.

    update_readme.py [--model NAME] [--rounds 3] [--llama-server PATH] [--from-results]

Every mode is a server, which gets the same chats over HTTP, one at a time. A round starts each server anew and asks it
every task once; the order of the modes changes from round to round. A rate is the tokens of an answer divided by the
seconds from the request to the last token, so it includes the time to read the prompt. The numbers, with their
provenance, are kept in benchmarks/results/readme.json. `--from-results` only writes the table from that file. A mode
that another mode of its column beats clearly on every task of the first round is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from compare_openai import TIMEOUT_S, ask
from peer_engines import find_llama_server
from report import markdown, write_report
from servers import RunningServer, llama_cpp_binary_server, paceline_server

from paceline.backends.native.model import instruction_sets
from paceline.checkpoint import DEFAULT_MODEL_NAME
from paceline.config import EngineConfig
from paceline.drafters.selection import ResolvedPair, resolve_pair
from paceline.operations.provenance import read_model_provenance, read_provenance
from paceline.operations.workload import Task, read_tasks

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results" / "readme.json"
LONG_TASKS = Path(__file__).parent / "workloads" / "long_tasks.jsonl"
LONG_TASK_IDS = ("edit-code-600", "question-code-2000", "summary-prose-2000")
CONTEXT_WINDOW_SIZE = 4096
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
PLAIN, FIXED, AUTOMATIC, PEER = "plain", "best fixed", "automatic", "llama.cpp, best mode"
COLUMNS = (PLAIN, FIXED, AUTOMATIC, PEER)
CLEARLY = 1.1  # how many times faster a mode must be to beat another one clearly

Rates = dict[str, dict[str, list[float]]]  # tokens per second by mode and task, one for each round


@dataclass(frozen=True)
class Mode:
    """One server: its name in the results, the column it competes in, and how to start it."""

    name: str
    column: str
    start: Callable[[], AbstractContextManager[RunningServer]]


def paceline_modes(model: str, has_draft_model: bool) -> list[Mode]:
    """Returns plain decoding, each drafter alone with fixed windows, and automatic mode."""
    options = {
        PLAIN: ["--speculation", "off"],
        **{
            f"{drafter} {window}": [
                *("--speculation", "fixed", "--drafters", drafter),
                *("--num-speculative-tokens", str(window)),
            ]
            for drafter, window in [("suffix", 7), *([("draft-model", 3), ("draft-model", 7)] * has_draft_model)]
        },
        AUTOMATIC: [],
    }
    shared = ["--max-batch-size", "1", "--context-window-size", str(CONTEXT_WINDOW_SIZE)]
    return [
        Mode(name, name if name in COLUMNS else FIXED, partial(paceline_server, model, *shared, *more))
        for name, more in options.items()
    ]


def llama_cpp_modes(binary: Path, pair: ResolvedPair, num_threads: int) -> list[Mode]:
    """Returns llama.cpp's plain decoding and its two ways to speculate."""
    options = {"plain": [], "n-gram": ["--spec-type", "ngram-mod"]}
    if pair.draft is not None:
        options["draft model"] = ["-md", str(pair.draft.path), "--spec-type", "draft-simple"]
        options["draft model"] += ["--spec-draft-n-max", "3"]
    start = partial(
        llama_cpp_binary_server,
        binary,
        pair.target.path,
        num_threads=num_threads,
        context_size=CONTEXT_WINDOW_SIZE,
    )
    return [Mode(f"llama.cpp, {name}", PEER, partial(start, *more)) for name, more in options.items()]


def readme_tasks() -> list[Task]:
    """Returns the first task of each kind and the long prompts of the table."""
    long_tasks = {task.id: task for task in read_tasks(LONG_TASKS)}
    return [*read_tasks(limit_per_kind=1), *(long_tasks[task_id] for task_id in LONG_TASK_IDS)]


def measure_mode(mode: Mode, tasks: Sequence[Task]) -> tuple[dict[str, float], dict[str, str]]:
    """Returns the rates and the texts of one round, by task."""
    rates: dict[str, float] = {}
    texts: dict[str, str] = {}
    # llama-server closes a connection that was used for a stream, without saying so.
    limits = httpx.Limits(max_keepalive_connections=0)
    with mode.start() as server, httpx.Client(base_url=server.url, timeout=TIMEOUT_S, limits=limits) as client:
        for task in tasks:
            answer = ask(client, task, "default", 0.0)
            rates[task.id] = answer.num_tokens / answer.total_s
            texts[task.id] = answer.text
    return rates, texts


def measure(modes: Sequence[Mode], tasks: Sequence[Task], num_rounds: int) -> tuple[Rates, list[str]]:
    """Returns the rates, and which of Paceline's answers differ from those of plain decoding."""
    for mode in modes:
        with mode.start():  # a server that cannot start ends the run at once, and not after many minutes
            pass
    rates: Rates = {mode.name: {task.id: [] for task in tasks} for mode in modes}
    plain_texts: dict[str, str] = {}
    different: dict[str, None] = {}
    for round_index in range(num_rounds):
        if round_index == 1:
            modes = contenders(modes, rates)
        first = round_index % len(modes)
        for mode in [*modes[first:], *modes[:first]]:
            found, texts = measure_mode(mode, tasks)
            for task_id, rate in found.items():
                rates[mode.name][task_id].append(rate)
            if mode.column != PEER:
                plain_texts = plain_texts or texts
                different.update({f"{mode.name}: {id}": None for id in texts if texts[id] != plain_texts[id]})
            mean = statistics.harmonic_mean(list(found.values()))
            print(f"round {round_index + 1}, {mode.name}: {mean:.1f} tokens/s", file=sys.stderr, flush=True)
    return rates, list(different)


def contenders(modes: Sequence[Mode], rates: Rates) -> list[Mode]:
    """Returns the modes that, on some task of the first round, came near the best mode of their column."""

    def is_near(mode: Mode) -> bool:
        rivals = [other.name for other in modes if other.column == mode.column]
        return any(
            of_rounds[0] * CLEARLY >= max(rates[name][task_id][0] for name in rivals)
            for task_id, of_rounds in rates[mode.name].items()
        )

    return [mode for mode in modes if is_near(mode)]


def cell(rates: Rates, names: Sequence[str], task_ids: Sequence[str], plain: float | None) -> str:
    """Returns median, lowest and highest rate of the fastest mode among `names`, its name if there are several, and
    how many times `plain` its median is. A mode's rate in a round is the harmonic mean over the tasks."""
    by_name = {name: rounds_of(rates[name], task_ids) for name in names}
    if not by_name:
        return "-"
    best = max(by_name, key=lambda name: statistics.median(by_name[name]))
    median = statistics.median(by_name[best])
    spread = f"{median:.1f} ({min(by_name[best]):.1f} to {max(by_name[best]):.1f})"
    factor = "" if plain is None else f" {median / plain:.2f}x"
    title = f", {best.removeprefix('llama.cpp, ')}" if len(names) > 1 else ""
    return f"{spread}{factor}{title}"


def rounds_of(rates: Mapping[str, Sequence[float]], task_ids: Sequence[str]) -> list[float]:
    """Returns the harmonic mean over the tasks in each round."""
    return [statistics.harmonic_mean(of_round) for of_round in zip(*(rates[id] for id in task_ids), strict=True)]


def render(report: Mapping[str, Any]) -> str:
    """Returns the lines between the markers."""
    rates: Rates = report["tokens_per_s"]
    task_ids = list(next(iter(rates.values())))
    rows = []
    for title, ids in [*((task_id, [task_id]) for task_id in task_ids), ("**all**", task_ids)]:
        plain = statistics.median(rounds_of(rates[PLAIN], ids))
        rows.append(
            [title]
            + [
                cell(
                    rates,
                    [name for name, its_column in report["columns"].items() if its_column == column],
                    ids,
                    None if column == PLAIN else plain,
                )
                for column in COLUMNS
            ]
        )
    provenance = report["provenance"]
    draft = f", drafted for by {provenance['draft']['name']}" if provenance["draft"] else ""
    equal = f"NOT equal: {', '.join(report['different'])}" if report["different"] else "equal to plain decoding's"
    return "\n".join(
        [
            f"{provenance['target']['name']}{draft}, greedy, one request at a time.",
            "Tokens per second of whole answers, from the request to the last token; a number in a row's name is the",
            "length of its prompt in tokens. Each cell has the median, the lowest and the highest of",
            f"{report['num_rounds']} runs, and the median divided by plain decoding's. Paceline's texts were {equal}.",
            "",
            markdown(["task", *COLUMNS], rows),
            "",
            f"{provenance['cpu']}, {provenance['num_cores']} cores, {provenance['num_threads']} threads, "
            f"{provenance['instruction_set']}; {provenance['date'][:10]}, commit {provenance['commit']}.",
            "`make bench` makes this table; benchmarks/results has all numbers and the table of all drafters.",
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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llama-server", type=Path, help="a build of llama.cpp; default: the one on the search path")
    parser.add_argument("--from-results", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if not options.from_results:
        pair = resolve_pair(EngineConfig(model=options.model))
        num_threads = len(os.sched_getaffinity(0))
        modes = paceline_modes(options.model, has_draft_model=pair.draft is not None)
        binary = find_llama_server(options.llama_server)
        if binary is not None:
            modes += llama_cpp_modes(binary, pair, num_threads)
        rates, different = measure(modes, readme_tasks(), options.rounds)
        provenance = read_provenance(
            os.environ.get("PACELINE_ISA") or instruction_sets()[-1],
            num_threads,
            read_model_provenance(pair.target.name, pair.target.path),
            read_model_provenance(pair.draft.name, pair.draft.path) if pair.draft else None,
        )
        content = {
            "num_rounds": options.rounds,
            "columns": {mode.name: mode.column for mode in modes},
            "different": different,
            "tokens_per_s": rates,
        }
        write_report(RESULTS, provenance, content)
    table = render(json.loads(RESULTS.read_text(encoding="utf-8")))
    README.write_text(replace_table(README.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
