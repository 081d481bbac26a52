"""How much memory the control groups (cgroups, v2 and v1) of this process leave it.

The limit may be that of the process's own group or of any group above it. Pages of files do not count as used, as in
/proc/meminfo's MemAvailable: the kernel drops them where memory is wanted, and a model file that was just downloaded is
nothing else. Source: Linux admin-guide, cgroup-v2.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class _Version:
    """Names of files in a group's directory, and of the fields of `memory.stat` that are pages of files; `controller`
    is the word in /proc/self/cgroup, `folder` where the hierarchy is mounted."""

    controller: str
    folder: str
    limit: str
    used: str
    file_pages: tuple[str, ...]


_VERSIONS = (
    _Version("", ".", "memory.max", "memory.current", ("inactive_file", "active_file")),
    _Version(
        "memory",
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)


def free_in_control_groups_bytes(proc: Path, mount: Path) -> int | None:
    """The least that any of the process's groups has free, None without a limit; `mount` is /sys/fs/cgroup."""
    free = [
        room
        for version in _VERSIONS
        for directory in _group_directories(mount / version.folder, _group_path(proc, version.controller))
        if (room := _free_bytes(directory, version)) is not None
    ]
    return min(free, default=None)


def _group_path(proc: Path, controller: str) -> PurePosixPath:
    """The process's group in the hierarchy of `controller`; the root where that is not known."""
    memberships = proc / "self" / "cgroup"
    for line in memberships.read_text().splitlines() if memberships.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return PurePosixPath(path)
    return PurePosixPath("/")


def _group_directories(root: Path, group: PurePosixPath) -> Iterator[Path]:
    """Of the group and those above it. A container may see its own group as the root and yet be told the path on the
    host, or one that leads out of what it sees: the root counts in any case."""
    yield root
    if ".." not in group.parts:
        yield from (root / path.relative_to("/") for path in (group, *group.parents) if path != PurePosixPath("/"))


def _free_bytes(directory: Path, version: _Version) -> int | None:
    limit = _read_number(directory / version.limit)
    used = _read_number(directory / version.used)
    if limit is None or used is None:
        return None
    fields = _read_fields(directory / "memory.stat")
    file_pages = sum(fields.get(name, 0) for name in version.file_pages)
    return max(0, limit - max(0, used - file_pages))


def _read_number(path: Path) -> int | None:
    """None where the file is absent or says that there is no limit."""
    if not path.is_file():
        return None
    text = path.read_text().strip()
    return int(text) if text.isdigit() else None


def _read_fields(path: Path) -> dict[str, int]:
    """Lines of a name and a number; none where the file is absent."""
    if not path.is_file():
        return {}
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}
