"""Benchmark tasks: reads chats from a JSON-lines file, says how they are sampled, and names the two modes that every
comparison has."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from itertools import chain, cycle, islice, zip_longest
from pathlib import Path

import msgspec

from paceline.core import SamplingParams
from paceline.core.errors import UsageError

SOURCE_TREE = Path(__file__).parents[3]
DEFAULT_TASKS = SOURCE_TREE / "benchmarks" / "workloads" / "tasks.jsonl"
PLAIN = "plain"
AUTO = "auto"
_TOP_P = 0.95


class Task(msgspec.Struct, frozen=True):
    """One chat to answer; `task` is the kind of the task, such as `code` or `chat`."""

    id: str
    task: str
    messages: list[dict[str, str]]
    max_tokens: int

    def sampling(self, *, max_tokens: int | None = None, temperature: float = 0.0) -> SamplingParams:
        """Returns greedy sampling at temperature 0, else sampling with top-p 0.95 and a seed made from the task's id.

        So every run gives the same text. `max_tokens` can only lower the task's own limit.
        """
        limit = self.max_tokens if max_tokens is None else min(max_tokens, self.max_tokens)
        if temperature == 0.0:
            return SamplingParams(max_tokens=limit, temperature=0.0)
        seed = zlib.crc32(self.id.encode())
        return SamplingParams(max_tokens=limit, temperature=temperature, top_p=_TOP_P, seed=seed)


def read_tasks(
    path: Path | None = None, *, limit_per_kind: int | None = None, only: Collection[str] | None = None
) -> list[Task]:
    """Returns the tasks in a file (None: the source tree's file), only those of the kinds in `only` (None: all kinds).

    `limit_per_kind` is the most tasks of each kind. Raises UsageError if the file cannot be read or lacks a kind.
    """
    path = path or DEFAULT_TASKS
    try:
        tasks = [msgspec.json.decode(line, type=Task) for line in path.read_bytes().splitlines() if line.strip()]
    except FileNotFoundError as error:
        raise UsageError(f"there is no workload at {path}; name one with --tasks") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"the workload {path} cannot be read: {error}") from error
    kinds = [task.task for task in tasks]
    for kind in only or ():
        if kind not in kinds:
            raise UsageError(f"the workload {path} has no kind {kind}; it has {', '.join(dict.fromkeys(kinds))}")
    return [
        task
        for index, task in enumerate(tasks)
        if (only is None or task.task in only)
        and (limit_per_kind is None or kinds[:index].count(task.task) < limit_per_kind)
    ]


def mix(tasks: Sequence[Task], count: int) -> list[Task]:
    """Returns `count` tasks, one of each kind in turn. It begins again at the start if there are fewer tasks."""
    kinds = dict.fromkeys(task.task for task in tasks)
    columns = zip_longest(*([task for task in tasks if task.task == kind] for kind in kinds))
    return list(islice(cycle(task for task in chain.from_iterable(columns) if task is not None), count))


def paired_modes(number: int) -> tuple[str, str]:
    """Returns the order of the two modes in the pair of runs with this number.

    The order alternates, so a machine that slows down affects both modes alike.
    """
    return (PLAIN, AUTO) if number % 2 == 0 else (AUTO, PLAIN)
