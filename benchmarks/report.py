"""The output of all benchmarks: a Markdown table to read, and a JSON file to keep, which begins with the provenance."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from paceline.operations.provenance import Provenance


def markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table. The first column is text, and the others are numbers."""
    lines = [f"| {' | '.join(headers)} |", f"|---|{'---:|' * (len(headers) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def number(value: float | None, format_spec: str) -> str:
    """Returns the formatted number, or a dash if nothing was measured."""
    return "-" if value is None else format(value, format_spec)


def write_report(path: Path, provenance: Provenance, content: Mapping[str, object]) -> None:
    """Writes the JSON file. Makes its folder if it is absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {"provenance": dataclasses.asdict(provenance), **content}
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def integers(text: str) -> list[int]:
    """Parses the argument of an option like `--rows 1,2,4`."""
    return [int(part) for part in text.split(",")]
