"""Runs the laboratory's scripts as real processes on a tiny pair: their tables, their JSON, and what they refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.tiny_gguf import TinyPair, write_tiny_gguf

SCRIPTS = Path(__file__).parents[2] / "benchmarks"

RunScript = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def script(tmp_path: Path) -> RunScript:
    """Returns a function that runs a script with arguments, in a folder with a workload `tasks.jsonl`."""
    task = {"id": "a-1", "task": "a", "max_tokens": 12, "messages": [{"role": "user", "content": "hello hello"}]}
    (tmp_path / "tasks.jsonl").write_text(f"{json.dumps(task)}\n")
    environment = os.environ | {"PACELINE_CACHE_DIR": str(tmp_path / "cache"), "COLUMNS": "120"}

    def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SCRIPTS / name), *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120, check=False
        )

    return run


@pytest.fixture
def pair_options(tiny_pair: TinyPair) -> tuple[object, ...]:
    return (tiny_pair.target, "--draft-model", tiny_pair.draft, "--tasks", "tasks.jsonl")


def test_crossover_prints_a_table_or_json(
    script: RunScript, pair_options: tuple[object, ...], tiny_pair: TinyPair
) -> None:
    table = script("crossover.py", *pair_options, "--streams", "1,3")
    assert table.returncode == 0, table.stderr
    assert [line.split()[0] for line in table.stdout.splitlines()] == ["streams", "1", "3"]
    report = json.loads(script("crossover.py", *pair_options, "--streams", "2", "--pairs", 2, "--json").stdout)
    assert [run["mode"] for run in report["runs"]] == ["plain", "auto", "auto", "plain"]
    assert report["points"][0]["num_streams"] == 2
    assert report["provenance"]["target"]["name"] == tiny_pair.target.stem


def test_pairs_prints_a_table_or_json(script: RunScript, pair_options: tuple[object, ...]) -> None:
    table = script("pairs.py", *pair_options, "--pairs", 1)
    assert table.returncode == 0, table.stderr
    assert [line.split()[0] for line in table.stdout.splitlines()] == ["prompt", "a-1"]
    report = json.loads(script("pairs.py", *pair_options, "--pairs", 2, "--temperature", 0.8, "--json").stdout)
    assert [len(check["ratios"]) for check in report["pairs"]] == [2]


def test_traces_are_recorded_and_replayed(script: RunScript, pair_options: tuple[object, ...], tmp_path: Path) -> None:
    recorded = script("traces.py", "record", *pair_options, "--output", "trace.json")
    assert recorded.returncode == 0, recorded.stderr
    words = [line.split()[0] for line in recorded.stdout.splitlines() if line]
    assert words[:5] == ["task", "a", "all", "setting", "plain"]
    assert len(words) == 4 + 1 + 3
    table = script("traces.py", "simulate", "trace.json")
    assert table.returncode == 0, table.stderr
    assert [line.split()[0] for line in table.stdout.splitlines()] == ["task", "a", "all"]
    (tmp_path / "costs.json").write_text(json.dumps({"target": {"rows": [1, 64], "seconds": [1.0, 1.0]}}))
    report = json.loads(script("traces.py", "simulate", "trace.json", "--costs", "costs.json", "--json").stdout)
    plain = next(replay for replay in report["replays"] if replay["setting"] == "plain")
    assert plain["tokens_per_s"] == pytest.approx(1.0)
    assert report["regrets"][-1]["auto_speed_up"] >= 1.0
    assert script("traces.py", "simulate", "tasks.jsonl").returncode == 2


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("crossover.py", ("--streams", "two"), "--streams two"),
        ("crossover.py", ("--speculation", "fixed"), "there is nothing to compare without drafters"),
        ("pairs.py", ("--drafters", "none"), "there is nothing to compare without drafters"),
        ("traces.py record", ("--output", "absent/trace.json"), "cannot write --output absent/trace.json"),
        ("traces.py record", ("--output", "."), "cannot write --output ."),
    ],
)
def test_a_wrong_use_is_one_line(
    name: str, options: tuple[str, ...], message: str, script: RunScript, pair_options: tuple[object, ...]
) -> None:
    result = script(*name.split(), *pair_options, *options)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("error: ")
    assert message in result.stderr


def test_a_model_that_cannot_chat_is_refused(script: RunScript, tmp_path: Path) -> None:
    plain = write_tiny_gguf(tmp_path / "plain.gguf", "qwen2", "Q4_K", chat_template=None)
    result = script("pairs.py", plain, "--drafters", "suffix", "--tasks", "tasks.jsonl")
    assert result.returncode == 2
    assert result.stderr == "error: plain has no chat template; choose a model made for chats\n"
