"""Tests the step benchmark: floors, batches and parts with given numbers, and a run on a tiny pair."""

from __future__ import annotations

import json

import numpy as np
import pytest
import step
from step_clock import DRAFTING, FORWARD, SAMPLING, StepClock

from paceline.checkpoint import GgufFile
from tests.support.tiny_gguf import write_tiny_gguf, write_tiny_pair


def test_a_ratio_is_to_the_bandwidth_measured_beside_it() -> None:
    assert step.floor_ratios([0.1, 0.2], [2e9, 1e9], 100_000_000) == [2.0, 2.0]


@pytest.mark.parametrize("tied", [False, True])
def test_a_pass_reads_the_embedding_only_where_it_is_the_output(tmp_path, tied: bool) -> None:
    with GgufFile.open(write_tiny_gguf(tmp_path / "tiny.gguf", "qwen2", "Q4_K", tied=tied)) as gguf:
        sizes = {name: tensor.data.nbytes for name, tensor in gguf.tensors.items()}
        expected = sum(sizes.values()) - (0 if tied else sizes["token_embd.weight"])
        assert step.pass_bytes(gguf) == expected


def test_a_chain_lies_behind_its_context() -> None:
    batch = step.chain_batch(30, [7, 8, 9], 3, [2])
    assert batch.positions.tolist() == batch.slots.tolist() == [30, 31, 32]
    assert batch.token_ids.tolist() == [7, 8, 9]
    assert batch.block_tables.tolist() == [[0, 1, 2]]
    assert batch.logit_rows.tolist() == [2]
    assert batch.path_offsets.tolist() == [0, 0, 0, 0]


def test_a_section_inside_another_counts_for_the_outer_one() -> None:
    clock = StepClock()
    assert clock.time(DRAFTING, clock.time, FORWARD, max, 3, 5) == 5
    taken = clock.take()
    assert taken[DRAFTING] > 0
    assert taken[FORWARD] == taken[SAMPLING] == 0
    assert clock.take() == dict.fromkeys(taken, 0.0)


def test_python_is_what_no_other_part_took() -> None:
    sample = {"total": 0.010, DRAFTING: 0.001, FORWARD: 0.006, SAMPLING: 0.002}
    parts = step.summarize_parts("plain", 4, [sample])
    assert parts.python_ms == pytest.approx(1.0)
    assert (parts.total_ms, parts.forward_ms) == pytest.approx((10.0, 6.0))


def test_a_tiny_run_measures_every_case(tmp_path, capsys) -> None:
    pair = write_tiny_pair(tmp_path, "qwen2", "Q4_K")
    path = tmp_path / "step.json"
    cases = ["--rows", "1,2", "--contexts", "0,40", "--rounds", "2", "--prompt-length", "24"]
    split = ["--sequences", "1,3", "--split-steps", "2", "--buffer-mib", "1", "--threads", "2"]
    step.main(["--model", str(pair.target), "--draft-model", str(pair.draft), *cases, *split, "--json", str(path)])
    report = json.loads(path.read_text(encoding="utf-8"))
    assert [(case["context"], case["num_rows"]) for case in report["steps"]] == [(0, 1), (0, 2), (40, 1), (40, 2)]
    assert all(case["floor_ratio"] > 0 for case in report["steps"])
    assert report["prompt_tokens_per_s"] > 0
    modes = [(part["mode"], part["num_sequences"]) for part in report["parts"]]
    assert modes == [("plain", 1), ("plain", 3), ("suffix+draft-model", 1), ("suffix+draft-model", 3)]
    plain, *_, drafting = report["parts"]
    assert plain["drafting_ms"] == 0 < drafting["drafting_ms"]
    assert all(part["sampling_ms"] > 0 and part["forward_ms"] > 0 for part in report["parts"])
    assert report["provenance"]["target"]["size_bytes"] == pair.target.stat().st_size
    assert "| rows | context 0 | context 40 |" in capsys.readouterr().out


def test_filled_kv_is_finite(tmp_path) -> None:
    from paceline.config import EngineConfig
    from paceline.engine.assembly import load_pair

    path = write_tiny_gguf(tmp_path / "tiny.gguf", "qwen2", "Q4_K")
    kv = load_pair(EngineConfig(model=str(path))).target.model.kv
    step.fill_kv(kv, 2)
    values = kv.read_block(1).view(np.float16)
    assert np.isfinite(values).all()
    assert values.min() > 0
