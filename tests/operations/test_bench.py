"""The benchmark measures every mode on every task, compares the texts, and records where its numbers come from."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from laboratory.pairs import check_pairs

from paceline.config import EngineConfig
from paceline.core.errors import UsageError
from paceline.operations.bench import Bench, Measurement, Mode, markdown_table, summarize
from paceline.operations.workload import Task, mix, read_tasks

TASKS = [
    Task("copy-1", "copy", [{"role": "user", "content": "abc abc abc"}], 12),
    Task("copy-2", "copy", [{"role": "user", "content": "one two"}], 12),
    Task("talk-1", "talk", [{"role": "user", "content": "hello"}], 1),
]


@pytest.fixture(scope="module")
def bench(tiny_pair) -> Bench:
    return Bench.load(EngineConfig(model=str(tiny_pair.target), draft_model=str(tiny_pair.draft)))


@pytest.fixture(scope="module")
def measurements(bench: Bench) -> list[Measurement]:
    return list(bench.measure(TASKS, max_tokens=10))


def test_each_task_runs_under_each_mode_with_the_same_text(measurements: list[Measurement]) -> None:
    modes = ["plain", "suffix 3", "suffix 7", "draft-model 3", "draft-model 7", "auto", "auto, warm store"]
    assert [(m.task_id, m.mode) for m in measurements] == [(task.id, mode) for task in TASKS for mode in modes]
    assert all(m.is_text_equal for m in measurements)
    assert [m.num_tokens for m in measurements] == [10] * 14 + [1] * 7
    assert all(m.num_draft_tokens == 0 and m.num_steps == m.num_tokens for m in measurements if m.mode == "plain")
    assert all(m.decode_tokens_per_s is None for m in measurements if m.task == "talk")


def test_summaries_add_up(measurements: list[Measurement]) -> None:
    summaries = {(summary.mode, summary.task): summary for summary in summarize(measurements)}
    drafted = summaries["draft-model 3", None]
    assert (drafted.num_tasks, drafted.num_tokens) == (3, 21)
    assert summaries["plain", None].tokens_per_step == 1.0
    assert summaries["plain", None].acceptance_rate is None
    assert drafted.acceptance_rate is not None
    accepted = sum(m.num_accepted_tokens for m in measurements if m.mode == "draft-model 3")
    assert drafted.acceptance_rate == accepted / sum(
        m.num_draft_tokens for m in measurements if m.mode == "draft-model 3"
    )
    assert drafted.wasted_share is None
    auto = [m for m in measurements if m.mode == "auto"]
    assert all(m.wasted_s is not None and 0.0 <= m.wasted_s <= m.step_s for m in auto)
    assert summaries["auto", None].wasted_share == pytest.approx(
        sum(m.wasted_s for m in auto) / sum(m.step_s for m in auto)
    )


def test_only_the_warm_store_knows_the_answer(bench: Bench) -> None:
    """All runs use the same fixed window of the suffix drafter, on a text that does not repeat itself."""
    task = Task("long", "long", [{"role": "user", "content": "hello"}], 40)
    cold = Mode("cold", ("suffix",), 7)
    [first, again, warm] = [
        bench.measure_one(task, mode)[1] for mode in (cold, cold, replace(cold, name="warm", is_warm=True))
    ]
    assert first.num_steps == again.num_steps
    assert warm.num_steps < first.num_steps
    assert warm.num_tokens == first.num_tokens == 40


def test_sampled_texts_are_equal_too(bench: Bench) -> None:
    [task] = TASKS[:1]
    assert all(m.is_text_equal for m in bench.measure([task], temperature=0.8))
    plain = bench.modes[0]
    assert bench.measure_one(task, plain)[0] != bench.measure_one(task, plain, temperature=3.0)[0]


def test_pairs_alternate_and_count_what_was_wasted(bench: Bench) -> None:
    [check] = check_pairs(bench, TASKS[1:], 3, max_tokens=10)  # an answer of one token has no speed
    assert (check.task_id, len(check.ratios), check.is_text_equal) == ("copy-2", 3, True)
    assert min(check.ratios) <= check.median_ratio <= max(check.ratios)
    assert 0.0 <= check.lost_share <= 1.0
    assert 0.0 <= check.wasted_share <= 1.0


def test_the_table_has_a_row_a_kind_and_a_column_a_mode(measurements: list[Measurement]) -> None:
    lines = markdown_table(summarize(measurements)).splitlines()
    assert (
        lines[0] == "| task | plain | suffix 3 | suffix 7 | draft-model 3 | draft-model 7 | auto | auto, warm store |"
    )
    assert [line.split(" |")[0] for line in lines[2:]] == ["| copy", "| talk", "| **all**"]


def test_provenance_names_machine_commit_and_checksums(bench: Bench, tiny_pair) -> None:
    provenance = bench.provenance()
    assert provenance.target.sha256 == hashlib.sha256(tiny_pair.target.read_bytes()).hexdigest()
    assert provenance.draft is not None
    assert provenance.draft.size_bytes == tiny_pair.draft.stat().st_size
    assert provenance.cpu
    assert provenance.num_threads >= 1


def test_the_tree_has_a_workload_of_all_kinds() -> None:
    assert {task.task for task in read_tasks(limit_per_kind=1)} == {
        *("code", "edit", "json", "summarize", "math", "chat", "story", "agent")
    }
    assert len(read_tasks(limit_per_kind=1)) == 8
    assert [task.task for task in read_tasks(limit_per_kind=1, only=["story", "chat"])] == ["chat", "story"]
    with pytest.raises(UsageError, match="no kind song"):
        read_tasks(only=["song"])


def test_a_mix_takes_each_kind_in_turn_and_starts_again() -> None:
    assert [task.id for task in mix(TASKS, 5)] == ["copy-1", "talk-1", "copy-2", "copy-1", "talk-1"]


@pytest.mark.parametrize("text", [None, "{}", "not json"])
def test_a_bad_workload_is_refused(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=r"tasks\.jsonl"):
        read_tasks(path)
