"""Tests the table of README.md: which mode a cell shows, its numbers, and where the table is put."""

from __future__ import annotations

import pytest
import update_readme
from update_readme import Mode, cell, contenders, readme_tasks, render, replace_table

RATES = {
    "plain": {"code": [10.0, 8.0, 9.0], "edit": [30.0, 30.0, 30.0]},
    "suffix 7": {"code": [9.0, 9.0, 9.0], "edit": [60.0, 70.0, 65.0]},
    "draft-model 3": {"code": [18.0, 17.0, 19.0], "edit": [40.0, 40.0, 40.0]},
    "automatic": {"code": [20.0, 18.0, 19.0], "edit": [90.0, 99.0, 93.0]},
}
REPORT = {
    "provenance": {
        "target": {"name": "t"},
        "draft": {"name": "d"},
        "cpu": "a processor",
        "num_cores": 2,
        "num_threads": 2,
        "instruction_set": "avx2",
        "date": "2026-12-01T00:00:00+00:00",
        "commit": "abc",
    },
    "num_rounds": 3,
    "columns": {name: name if name in ("plain", "automatic") else "best fixed" for name in RATES},
    "different": [],
    "tokens_per_s": RATES,
}


def test_a_cell_has_median_and_spread() -> None:
    assert cell(RATES, ["plain"], ["code"], None) == "9.0 (8.0 to 10.0)"


def test_a_cell_shows_the_fastest_mode_and_names_it() -> None:
    assert cell(RATES, ["suffix 7", "draft-model 3"], ["code"], 9.0) == "18.0 (17.0 to 19.0) 2.00x, draft-model 3"
    assert cell(RATES, ["suffix 7", "draft-model 3"], ["edit"], 30.0) == "65.0 (60.0 to 70.0) 2.17x, suffix 7"
    assert cell(RATES, [], ["edit"], 30.0) == "-"


def test_several_tasks_count_by_their_harmonic_mean() -> None:
    assert cell(RATES, ["plain"], ["code", "edit"], None) == "13.8 (12.6 to 15.0)"


def test_a_mode_that_is_clearly_beaten_everywhere_is_not_run_again() -> None:
    rates = {
        "plain": {"code": [1.0], "edit": [1.0]},
        "suffix 7": {"code": [5.0], "edit": [9.0]},
        "draft-model 3": {"code": [9.0], "edit": [5.0]},
        "draft-model 7": {"code": [8.5], "edit": [1.0]},
        "ngram 7": {"code": [8.0], "edit": [8.0]},
    }
    modes = [Mode(name, name if name == "plain" else "best fixed", start=None) for name in rates]
    assert [mode.name for mode in contenders(modes, rates)] == ["plain", "suffix 7", "draft-model 3", "draft-model 7"]


def test_the_table_has_a_row_for_each_task_and_one_for_all() -> None:
    lines = render(REPORT).splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows] == ["| task", "| code", "| edit", "| **all**"]
    assert rows[1].endswith("| 19.0 (18.0 to 20.0) 2.11x | - |")
    assert "Paceline's texts were equal to plain decoding's." in " ".join(lines)
    different = render({**REPORT, "different": ["automatic: code"]})
    assert "NOT equal: automatic: code" in different


def test_the_table_replaces_what_is_between_the_markers() -> None:
    text = f"a\n{update_readme.BEGIN}\nold\n{update_readme.END}\nb\n"
    assert replace_table(text, "new") == f"a\n{update_readme.BEGIN}\nnew\n{update_readme.END}\nb\n"
    with pytest.raises(ValueError, match="unpack"):
        replace_table("no markers", "new")


def test_every_kind_and_three_long_prompts_are_measured() -> None:
    tasks = readme_tasks()
    assert len({task.task for task in tasks}) == len(tasks) == 11
    assert [task.id for task in tasks[-3:]] == list(update_readme.LONG_TASK_IDS)
