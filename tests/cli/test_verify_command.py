"""`paceline verify` exits with 0 if nothing differs; otherwise it prints where the texts differ and exits with 1."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from paceline.backends.native.model import instruction_sets
from paceline.cli.main import app
from paceline.config import EngineConfig
from paceline.engine import assembly as loading
from paceline.operations import verify as verify_module
from tests.operations.faulty_model import make_faulty
from tests.support.tiny_gguf import TinyPair


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACELINE_CACHE_DIR", str(tmp_path))


def test_it_prints_a_table_and_the_sum(tiny_pair: TinyPair) -> None:
    arguments = ["verify", str(tiny_pair.target), "--draft-model", str(tiny_pair.draft), "--threads", "1", "--logits"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    header, *rows, last = result.stdout.splitlines()
    assert header.split()[:6] == ["isa", "threads", "drafters", "window", "batch", "chunk"]
    assert {row.split()[-1] for row in rows} == {"equal"}
    assert {row.split()[0] for row in rows} == set(instruction_sets())
    assert last.startswith("identical: tokens, log-probabilities and logits of ")
    assert f"in {len(rows)} runs" in last


def test_json_has_every_run_with_its_setting(tiny_pair: TinyPair) -> None:
    result = CliRunner().invoke(app, ["verify", str(tiny_pair.target), "--drafters", "suffix", "--json"])
    assert result.exit_code == 0, result.output
    checks = json.loads(result.stdout)
    assert {check["difference"] for check in checks} == {None}
    assert {tuple(check["variant"]["drafters"]) for check in checks} == {(), ("suffix",)}
    assert any(check["variant"]["costs"] is not None for check in checks)  # automatic mode


@pytest.mark.parametrize("is_json", [False, True])
def test_a_fault_ends_it_with_1_and_its_place(tiny_pair: TinyPair, is_json: bool, monkeypatch) -> None:
    def load_faulty(config: EngineConfig, *, instruction_set: str | None = None) -> loading.LoadedPair:
        return make_faulty(loading.load_pair(config, instruction_set=instruction_set), token_id=70, rise=1000.0)

    monkeypatch.setattr(verify_module, "load_pair", load_faulty)
    arguments = ["verify", str(tiny_pair.target), "--drafters", "ngram", *(["--json"] if is_json else [])]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    if is_json:
        last = json.loads(result.stdout)[-1]["difference"]
        where = (
            f"{last['sampling']} text of prompt {last['prompt_index']} differs at output position {last['position']}"
        )
        assert last["actual"]["token_id"] == 70
        assert where in result.stderr
    else:
        assert result.stdout.splitlines()[-1].endswith("DIFFERS")
    assert "this run has token 70 " in result.stderr
    assert result.stderr.count("\n") == 1
