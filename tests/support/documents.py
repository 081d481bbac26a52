"""Reads from docs/ what tests compare with the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def files_of_a_tokens_life() -> list[str]:
    """Returns the files that a plain decode step executes according to docs/extending.md, relative to the
    repository."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    section = text.split("## The files of a token's life")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `(src/paceline/[\w/]+\.py)`", section, re.MULTILINE)
