"""Tests the controller without a model: replays recorded texts and hostile texts with three cost models.

    replay.py [--traces FILE ...] [--costs FILE ...] [--streams 1,4] [--baseline FILE] [--output FILE]

For each cost model it prints the speed-up of automatic mode over plain decoding: for each kind of task with a
controller that starts on it, for all tasks of a trace in one run, and for hostile texts, on which it cannot gain. With
`--baseline`, a file that `--output` wrote, it prints the ratios to that run instead, and exits 1 if the ratio of all
tasks together is below 0.99, of a kind of task below 0.98, or of a hostile text below 0.995.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from laboratory.hostile import HOSTILE_TEXTS, PROMPT_LENGTHS, hostile_speed
from laboratory.simulate import Setting, Simulation
from laboratory.trace import Trace, read_costs, read_trace

from paceline.controller.cost_model import StepCosts
from paceline.operations.workload import AUTO, PLAIN

FOLDER = Path(__file__).parent / "replays"
TRACES = sorted(FOLDER.glob("*.json.gz"))
COSTS = sorted((FOLDER / "costs").glob("*.json"))
NUM_ORDERS = 4
LEAST_RATIOS = {"all": 0.99, "task": 0.98, "hostile": 0.995}

Speeds = dict[str, dict[str, float]]
"""Speed-ups over plain decoding, by cost model and case."""


def speed_up(trace: Trace, costs: StepCosts, task: str | None, num_streams: int) -> float:
    """Returns the speed of automatic mode divided by that of plain decoding on one kind of prompts (None: all).

    The order of the texts affects what the controller learns, so the times of several orders are added.
    """
    prompts = [prompt for prompt in trace.prompts if task in (None, prompt.task)]
    simulation = Simulation(trace, costs, num_streams=num_streams)
    starts = {number * len(prompts) // NUM_ORDERS for number in range(NUM_ORDERS)}
    plain_s, auto_s = (
        sum(simulation.replay(setting, prompts[start:] + prompts[:start]).seconds for start in starts)
        for setting in (Setting(PLAIN), Setting(AUTO, is_auto=True))
    )
    return plain_s / auto_s


def measure(costs: StepCosts, traces: dict[str, Trace], streams: Sequence[int]) -> dict[str, float]:
    """Returns the speed-up in every case."""
    speeds: dict[str, float] = {}
    for name, trace in traces.items():
        tasks = dict.fromkeys(prompt.task for prompt in trace.prompts)
        speeds |= {f"task {task}": speed_up(trace, costs, task, 1) for task in tasks}
        speeds |= {f"all {name}, {number} at a time": speed_up(trace, costs, None, number) for number in streams}
    for text, length, is_late in itertools.product(HOSTILE_TEXTS, PROMPT_LENGTHS, (False, True)):
        case = f"hostile {text.name}, prompt {length}, {'after friendly ones' if is_late else 'first'}"
        speeds[case] = hostile_speed(text, length, costs, after_friendly=is_late)
    return speeds


def faults(ratios: Speeds) -> list[str]:
    """Returns the cases whose ratio is below its limit."""
    return [
        f"{name}, {case}: {ratio:.4f}"
        for name, cases in ratios.items()
        for case, ratio in cases.items()
        if ratio < LEAST_RATIOS[case.split()[0]]
    ]


def show(speeds: Speeds) -> None:
    """Prints one line for each case, with a column for each cost model."""
    names = list(speeds)
    print(f"{'':<48}", *(f"{name:>14}" for name in names))
    for case in next(iter(speeds.values())):
        print(f"{case:<48}", *(f"{speeds[name][case]:>14.4f}" for name in names))


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, nargs="+", default=TRACES)
    parser.add_argument("--costs", type=Path, nargs="+", default=COSTS)
    parser.add_argument("--streams", default="1,2,4")
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    traces = {path.name.partition(".json")[0]: read_trace(path) for path in options.traces}
    streams = [int(number) for number in options.streams.split(",")]
    with ProcessPoolExecutor() as pool:
        found = pool.map(partial(measure, traces=traces, streams=streams), map(read_costs, options.costs))
        speeds = {path.stem: cases for path, cases in zip(options.costs, found, strict=True)}
    if options.output is not None:
        options.output.write_text(json.dumps(speeds, indent=2) + "\n")
    if options.baseline is None:
        show(speeds)
        return
    before: Speeds = json.loads(options.baseline.read_text())
    ratios = {
        name: {case: speed / before[name][case] for case, speed in cases.items()} for name, cases in speeds.items()
    }
    show(ratios)
    if slow := faults(ratios):
        print("too slow: " + "; ".join(slow), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
