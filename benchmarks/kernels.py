"""Measures GEMM for each weight type and number of rows, against the machine's limits measured in the same rounds.

    kernels.py [--types Q4_K,Q6_K] [--rows 1,8,512] [--instruction-sets avx512] [--disturbed] [--json OUT]

Each thread stays on one core and takes one matrix after another. All weights together are larger than the caches.
Calls over no columns measure the time to round the rows and to allocate the result; it is subtracted. `--disturbed`
also measures everything next to a process that uses 20 % of a core.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from disturbance import busy_process
from report import integers, markdown, number, write_report

from paceline import _native
from paceline.backends.native.model import instruction_sets
from paceline.checkpoint import GgmlType
from paceline.core import Float32Array
from paceline.machine.limits import BUFFER_BYTES, MachineLimits, MachineProbe
from paceline.operations.provenance import read_provenance

_kernels: Any = _native.kernels  # type: ignore[attr-defined]  # only for tests and benchmarks

DEFAULT_TYPES = "Q4_0,Q4_1,Q5_0,Q8_0,Q4_K,Q5_K,Q6_K,F16"
DEFAULT_ROWS = "1,2,4,8,12,16,32,64,128,256,512"
FLOAT_TYPES = frozenset({GgmlType.F32, GgmlType.F16, GgmlType.BF16})
VNNI = "avx512"
DISTURBANCE_SHARE = 0.2


@dataclass(frozen=True)
class Workload:
    """What is multiplied: the matrices in `weights`, of one type and `outputs` by `inputs` each."""

    weight_type: GgmlType
    outputs: int
    inputs: int
    instruction_set: str
    num_threads: int
    weights: list[Any]

    @property
    def matrix_bytes(self) -> int:
        """The size of a matrix in the file. A repacked matrix may be slightly larger."""
        return stored_bytes(self.weight_type, self.outputs, self.inputs)


@dataclass(frozen=True)
class Window:
    """One number of rows in one round: seconds for each matrix over all threads, and the machine's limits."""

    gemm_s: float
    rounding_s: float
    limits: MachineLimits
    vnni_per_s: float | None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Medians over the rounds. Each share is relative to a limit of the same round; None if it has no meaning."""

    weight_type: str
    instruction_set: str
    num_rows: int
    is_disturbed: bool
    gemm_ms: float
    rounding_ms: float
    bytes_per_s: float
    multiply_adds_per_s: float
    bandwidth_share: float
    dot_share: float | None
    vnni_share: float | None


def stored_bytes(weight_type: GgmlType, outputs: int, inputs: int) -> int:
    """Returns the size of a matrix in a GGUF file, in bytes."""
    return outputs * inputs // weight_type.block_size * weight_type.type_size_bytes


def make_weights(weight_type: GgmlType, outputs: int, inputs: int, total_bytes: int) -> list[Any]:
    """Returns as many matrices as fit into `total_bytes`, at least two."""
    size = stored_bytes(weight_type, outputs, inputs)
    # Any two of these bytes are a float16 and any four a float32 that is positive, normal and below 1.
    data = np.random.default_rng(0).integers(0x10, 0x3C, size, dtype=np.uint8)
    count = max(2, total_bytes // size)
    return [_kernels.pack(int(weight_type), data, outputs, inputs) for _ in range(count)]


def multiply(workload: Workload, index: int, rows: Float32Array, *, num_blocks: int) -> None:
    """Makes the call that this benchmark measures: it rounds the rows and multiplies the first `num_blocks` blocks."""
    matrix = workload.weights[index % len(workload.weights)]
    _kernels.gemm(workload.instruction_set, matrix, rows, 0, num_blocks)


def seconds_per_matrix(
    pool: ThreadPoolExecutor, workload: Workload, rows: Float32Array, *, num_blocks: int, window_s: float
) -> float:
    """Returns the seconds for each matrix over all threads. Each thread calls for `window_s`, at least once."""
    claims = itertools.count()

    def work(_: int) -> tuple[int, float]:
        start_s = time.perf_counter()
        for num_calls in itertools.count(1):
            multiply(workload, next(claims), rows, num_blocks=num_blocks)
            if (elapsed_s := time.perf_counter() - start_s) >= window_s:
                return num_calls, elapsed_s
        raise AssertionError

    return 1 / calls_per_s(list(pool.map(work, range(workload.num_threads))))


def stay_on_core(core: int) -> None:
    """Keeps the calling thread on its core. Threads that wait for Python's lock could be moved to one core."""
    os.sched_setaffinity(0, {core})


def calls_per_s(counts: Sequence[tuple[int, float]]) -> float:
    """Returns the sum of the threads' rates. Each thread has (calls, seconds), and they need not end together."""
    return sum(num_calls / elapsed_s for num_calls, elapsed_s in counts)


def net_seconds(full_s: float, empty_s: float) -> float:
    """Returns a call's time minus that of a call over no columns, or the full time if noise hides the difference."""
    return full_s - empty_s if full_s > empty_s else full_s


def measure_round(
    pool: ThreadPoolExecutor,
    workload: Workload,
    rows_by_number: dict[int, Float32Array],
    probes: dict[str, MachineProbe],
    window_s: float,
) -> Iterator[tuple[int, Window]]:
    """Yields one window for each number of rows. The limits are measured once, before the windows."""
    num_blocks = workload.weights[0].column_blocks
    limits = probes[workload.instruction_set].measure()
    vnni_per_s = probes[VNNI].measure().multiply_adds_per_s if VNNI in probes else None
    for num_rows, rows in rows_by_number.items():
        empty_s = seconds_per_matrix(pool, workload, rows, num_blocks=0, window_s=window_s / 5)
        full_s = seconds_per_matrix(pool, workload, rows, num_blocks=num_blocks, window_s=window_s)
        yield num_rows, Window(net_seconds(full_s, empty_s), empty_s, limits, vnni_per_s)


def summarize(workload: Workload, num_rows: int, windows: Sequence[Window], *, is_disturbed: bool) -> Cell:
    """Returns the medians over the rounds."""
    multiply_adds = workload.outputs * workload.inputs * num_rows
    is_float = workload.weight_type in FLOAT_TYPES
    vnni_shares = [multiply_adds / window.gemm_s / window.vnni_per_s for window in windows if window.vnni_per_s]
    gemm_s = statistics.median(window.gemm_s for window in windows)
    return Cell(
        weight_type=workload.weight_type.name,
        instruction_set=workload.instruction_set,
        num_rows=num_rows,
        is_disturbed=is_disturbed,
        gemm_ms=gemm_s * 1e3,
        rounding_ms=statistics.median(window.rounding_s for window in windows) * 1e3,
        bytes_per_s=workload.matrix_bytes / gemm_s,
        multiply_adds_per_s=multiply_adds / gemm_s,
        bandwidth_share=statistics.median(
            workload.matrix_bytes / window.gemm_s / window.limits.read_bytes_per_s for window in windows
        ),
        dot_share=None
        if is_float
        else statistics.median(multiply_adds / window.gemm_s / window.limits.multiply_adds_per_s for window in windows),
        vnni_share=None if is_float or not vnni_shares else statistics.median(vnni_shares),
    )


def measure_type(
    workload: Workload, numbers_of_rows: Sequence[int], probes: dict[str, MachineProbe], options: argparse.Namespace
) -> list[Cell]:
    """Measures and returns all cells of one weight type. Quiet and disturbed rounds alternate."""
    random = np.random.default_rng(1)
    rows = {n: random.standard_normal((n, workload.inputs), dtype=np.float32) for n in numbers_of_rows}
    windows: dict[tuple[bool, int], list[Window]] = {}
    cores = itertools.cycle(sorted(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(workload.num_threads, initializer=lambda: stay_on_core(next(cores))) as pool:
        for _ in range(options.rounds):
            for is_disturbed in (False, True) if options.disturbed else (False,):
                with busy_process(DISTURBANCE_SHARE) if is_disturbed else nullcontext():
                    found = measure_round(pool, workload, rows, probes, options.window_ms / 1e3)
                    for num_rows, window in found:
                        windows.setdefault((is_disturbed, num_rows), []).append(window)
    return [
        summarize(workload, num_rows, found, is_disturbed=is_disturbed)
        for (is_disturbed, num_rows), found in windows.items()
    ]


def render(cells: Sequence[Cell]) -> str:
    """Returns a table with one row for each cell, with the slowdown by the disturbance if it was measured."""
    headers = ["weights", "set", "rows", "ms", "GB/s", "of memory", "GMAC/s", "of peak", "of VNNI", "rounding ms"]
    disturbed = {(cell.weight_type, cell.instruction_set, cell.num_rows): cell for cell in cells if cell.is_disturbed}
    rows = []
    for cell in (cell for cell in cells if not cell.is_disturbed):
        other = disturbed.get((cell.weight_type, cell.instruction_set, cell.num_rows))
        slowdown = [f"{other.gemm_ms / cell.gemm_ms:.2f}x"] if other else []
        rows.append(
            [
                cell.weight_type,
                cell.instruction_set,
                str(cell.num_rows),
                f"{cell.gemm_ms:.3f}",
                f"{cell.bytes_per_s / 1e9:.1f}",
                f"{cell.bandwidth_share:.0%}",
                f"{cell.multiply_adds_per_s / 1e9:.0f}",
                number(cell.dot_share, ".0%"),
                number(cell.vnni_share, ".0%"),
                f"{cell.rounding_ms:.3f}",
                *slowdown,
            ]
        )
    return markdown([*headers, "disturbed"] if disturbed else headers, rows)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default=DEFAULT_TYPES)
    parser.add_argument("--rows", type=integers, default=integers(DEFAULT_ROWS))
    parser.add_argument("--instruction-sets", default=_native.default_instruction_set(), help="joined by commas")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--outputs", type=int, default=8960)
    parser.add_argument("--inputs", type=int, default=1536)
    parser.add_argument("--weights-mib", type=int, default=1024, help="of each type; more than the caches")
    parser.add_argument("--buffer-mib", type=int, default=BUFFER_BYTES >> 20, help="of the bandwidth measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window-ms", type=float, default=50.0)
    parser.add_argument("--disturbed", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each type when it is measured, then writes all numbers to the file."""
    options = parse_options(arguments)
    chosen = options.instruction_sets.split(",")
    probed = {*chosen, VNNI} & set(instruction_sets())
    probes = {name: MachineProbe(options.threads, name, buffer_bytes=options.buffer_mib << 20) for name in probed}
    cells: list[Cell] = []
    for weight_type in [GgmlType[name] for name in options.types.split(",")]:
        weights = make_weights(weight_type, options.outputs, options.inputs, options.weights_mib << 20)
        for name in chosen:
            workload = Workload(weight_type, options.outputs, options.inputs, name, options.threads, weights)
            found = measure_type(workload, options.rows, probes, options)
            print(render(found), flush=True)
            cells += found
    limits = {name: dataclasses.asdict(probe.measure()) for name, probe in sorted(probes.items())}
    for name, limit in limits.items():
        memory, dot = limit["read_bytes_per_s"] / 1e9, limit["multiply_adds_per_s"] / 1e9
        print(f"limits, {name}: {memory:.1f} GB/s read, {dot:.0f} GMAC/s of 8 bits")
    if options.json:
        provenance = read_provenance(",".join(chosen), options.threads)
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        content = {"settings": settings, "limits": limits, "cells": [dataclasses.asdict(cell) for cell in cells]}
        write_report(options.json, provenance, content)


if __name__ == "__main__":
    main()
