"""Finds the processes that render chat templates, as the operating system shows them."""

from __future__ import annotations

import os
from pathlib import Path


def template_processes(parent_id: int | None = None) -> set[int]:
    """Returns the ids of the running children of a process (None: this process) that render templates."""
    parent_id = os.getpid() if parent_id is None else parent_id
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_template_process(path, parent_id)}


def resident_bytes(process_id: int) -> int:
    """Returns the resident memory of the process."""
    return int(_status(Path("/proc") / str(process_id))["VmRSS"].split()[0]) * 1024


def _is_template_process(path: Path, parent_id: int) -> bool:
    try:
        is_child = _status(path)["PPid"] == str(parent_id)
        return is_child and b"template_worker" in (path / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _status(path: Path) -> dict[str, str]:
    lines = (path / "status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
