"""Benchmark tasks: chats in a JSON-lines file, one task a line."""

from __future__ import annotations

from pathlib import Path

import msgspec

from paceline.core.errors import UsageError

SOURCE_TREE = Path(__file__).parents[3]
DEFAULT_TASKS = SOURCE_TREE / "benchmarks" / "workloads" / "tasks.jsonl"


class Task(msgspec.Struct, frozen=True):
    """One chat to answer; `task` is the kind of text it asks for."""

    id: str
    task: str
    messages: list[dict[str, str]]
    max_tokens: int


def read_tasks(path: Path | None = None, *, limit_per_kind: int | None = None) -> list[Task]:
    """The tasks of a file (None: the source tree's), at most so many of each kind; raises UsageError."""
    path = path or DEFAULT_TASKS
    try:
        tasks = [msgspec.json.decode(line, type=Task) for line in path.read_bytes().splitlines() if line.strip()]
    except FileNotFoundError as error:
        raise UsageError(f"there is no workload at {path}; name one with --tasks") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"the workload {path} cannot be read: {error}") from error
    kinds = [task.task for task in tasks]
    return [
        task
        for index, task in enumerate(tasks)
        if limit_per_kind is None or kinds[:index].count(task.task) < limit_per_kind
    ]
