"""Tests the kernel benchmark: its arithmetic on given times, and a run with tiny sizes."""

from __future__ import annotations

import json
import time

import kernels
import numpy as np
import pytest
from disturbance import busy_process

from paceline.checkpoint import GgmlType
from paceline.machine.limits import MachineLimits

OUTPUTS, INPUTS = 64, 256
LIMITS = MachineLimits(read_bytes_per_s=1e9, multiply_adds_per_s=1e12)


def make_workload(weight_type: GgmlType) -> kernels.Workload:
    return kernels.Workload(weight_type, OUTPUTS, INPUTS, "scalar", 2, [])


def test_shares_are_of_the_limits_of_the_same_round() -> None:
    windows = [
        kernels.Window(1e-4, 1e-6, LIMITS, 2e12),
        kernels.Window(2e-4, 2e-6, MachineLimits(5e8, 5e11), 1e12),
        kernels.Window(4e-4, 4e-6, MachineLimits(2.5e8, 2.5e11), 5e11),
    ]
    cell = kernels.summarize(make_workload(GgmlType.Q4_K), 8, windows, is_disturbed=False)
    num_bytes, multiply_adds = OUTPUTS * 144, OUTPUTS * INPUTS * 8
    assert cell.gemm_ms == pytest.approx(0.2)
    assert cell.bytes_per_s == pytest.approx(num_bytes / 2e-4)
    assert cell.bandwidth_share == pytest.approx(num_bytes / 1e5)
    assert cell.dot_share == pytest.approx(multiply_adds / 1e8)
    assert cell.vnni_share == pytest.approx(multiply_adds / 2e8)


def test_float_weights_have_no_share_of_the_dot_product() -> None:
    cell = kernels.summarize(
        make_workload(GgmlType.F16), 1, [kernels.Window(1e-4, 0.0, LIMITS, 2e12)], is_disturbed=False
    )
    assert (cell.dot_share, cell.vnni_share) == (None, None)
    assert cell.bandwidth_share == pytest.approx(OUTPUTS * INPUTS * 2 / 1e5)


def test_threads_that_end_at_other_times_add_their_rates() -> None:
    assert kernels.calls_per_s([(10, 1.0), (6, 0.5)]) == 22


@pytest.mark.parametrize(("full_s", "empty_s", "net_s"), [(3.0, 1.0, 2.0), (1.0, 1.5, 1.0)])
def test_the_time_of_an_empty_call_is_taken_off_unless_noise_hides_it(
    full_s: float, empty_s: float, net_s: float
) -> None:
    assert kernels.net_seconds(full_s, empty_s) == net_s


@pytest.mark.parametrize("weight_type", [GgmlType[name] for name in [*kernels.DEFAULT_TYPES.split(","), "F32", "BF16"]])
def test_made_up_weights_give_finite_results(weight_type: GgmlType) -> None:
    matrix, *_ = kernels.make_weights(weight_type, OUTPUTS, INPUTS, 0)
    rows = np.ones((2, INPUTS), np.float32)
    result = kernels._native.kernels.gemm("scalar", matrix, rows, 0, matrix.column_blocks)
    assert np.isfinite(result).all()
    assert np.abs(result).max() > 0


def test_a_tiny_run_keeps_every_cell_with_its_provenance(tmp_path, capsys) -> None:
    path = tmp_path / "results" / "kernels.json"
    sizes = ["--outputs", str(OUTPUTS), "--inputs", str(INPUTS), "--weights-mib", "0", "--buffer-mib", "1"]
    times = ["--rounds", "2", "--window-ms", "1"]
    kernels.main(["--types", "Q4_K,F16", "--rows", "1,3", "--disturbed", *sizes, *times, "--json", str(path)])
    report = json.loads(path.read_text(encoding="utf-8"))
    keys = [(cell["weight_type"], cell["is_disturbed"], cell["num_rows"]) for cell in report["cells"]]
    assert sorted(keys) == sorted((t, d, n) for t in ("Q4_K", "F16") for d in (False, True) for n in (1, 3))
    assert all(cell["gemm_ms"] > 0 and cell["bandwidth_share"] > 0 for cell in report["cells"])
    assert report["provenance"]["target"] is None
    assert report["provenance"]["instruction_set"] in report["limits"]
    assert "| Q4_K |" in capsys.readouterr().out


def test_the_disturbance_takes_its_share_of_a_core() -> None:
    """The accepted range is wide, because a loaded machine may give the process less."""
    with busy_process(0.2) as process:
        start_s, begin_s = time.perf_counter(), cpu_seconds(process.pid)
        time.sleep(0.5)
        share = (cpu_seconds(process.pid) - begin_s) / (time.perf_counter() - start_s)
    assert process.returncode is not None
    assert 0 < share < 0.5


def cpu_seconds(process_id: int) -> float:
    with open(f"/proc/{process_id}/schedstat", encoding="utf-8") as file:  # noqa: PTH123
        return int(file.read().split()[0]) / 1e9
