"""A small model's answers have the bits that are kept in the repository, and the check finds an answer that differs."""

from __future__ import annotations

import json
from pathlib import Path

import bits
import pytest

KEPT = bits.FOLDER / "smollm2.json"


def test_answers_have_the_bits_that_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert bits.check(KEPT, None, ("suffix",))
    assert capsys.readouterr().out.count("8 answers equal") == 3


def test_an_answer_of_other_bits_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = json.loads(KEPT.read_text())
    name = "code-1 sampled"
    kept["answers"][name] = kept["answers"][name][::-1]
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(kept))
    assert not bits.check(changed, None, ())
    assert capsys.readouterr().out.count(f"DIFFERS: {name}") == 1
