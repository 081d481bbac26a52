"""The options that the `paceline bench` commands share: which tasks the model answers, and how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from paceline.cli.options import sampling_option
from paceline.core.errors import UsageError

Item = TypeVar("Item")

TasksOption = Annotated[
    Path | None, typer.Option(help="File of tasks: a JSON object a line, with id, task, messages and max_tokens.")
]
KindsOption = Annotated[str | None, typer.Option(help="Kinds of tasks to run, joined by commas; default: all.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Maximum number of tasks of each kind; default: all.")]
CapOption = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of tokens of an answer; default: each task's own limit.")
]
BenchTemperatureOption = Annotated[
    float, sampling_option("temperature", "0 is greedy; above 0, top-p is 0.95 and each task has a fixed seed.")
]


def split(text: str | None, kind: Callable[[str], Item], name: str) -> list[Item] | None:
    """Returns the values of an option that takes several, joined by commas. Raises UsageError."""
    if text is None:
        return None
    try:
        return [kind(part.strip()) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{name} {text} is not understood; give values joined by commas") from error
