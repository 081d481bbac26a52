"""How much memory and how many cores the control groups (cgroups, v2 and v1) of this process allow it to use.

The process's own group may have a limit, and so may any group above it. Cached pages of files do not count as used, as
in MemAvailable of /proc/meminfo: the kernel drops them when memory is needed, and a model file that was just downloaded
fills many of them. Source: Linux admin-guide, cgroup-v2.rst and cgroup-v1/memory.rst, and scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class _Version:
    """The names that one cgroup version uses. `controller` is the word in /proc/self/cgroup, and `folder` the place of
    the hierarchy below the mount point. `limit` and `used` are files in a group's directory. `file_pages` names the
    fields of `memory.stat` that count pages of files."""

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
_QUOTA_FILES = (("", ".", ("cpu.max",)), ("cpu", "cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us")))


def free_in_control_groups_bytes(proc: Path, mount: Path) -> int | None:
    """Returns the free memory of the process's group that has the least, None where no group has a limit.

    `proc` is /proc and `mount` is /sys/fs/cgroup.
    """
    free = [
        room
        for version in _VERSIONS
        for directory in _group_directories(mount / version.folder, _group_path(proc, version.controller))
        if (room := _free_bytes(directory, version)) is not None
    ]
    return min(free, default=None)


def cores_in_control_groups(proc: Path, mount: Path) -> int | None:
    """Returns the smallest CPU quota of the process's groups, in cores and rounded up; None without a quota."""
    quotas = [
        quota
        for controller, folder, names in _QUOTA_FILES
        for directory in _group_directories(mount / folder, _group_path(proc, controller))
        if (quota := _quota_in_cores(*(directory / name for name in names))) is not None
    ]
    return math.ceil(min(quotas)) if quotas else None


def _group_path(proc: Path, controller: str) -> PurePosixPath:
    """Returns the process's group in the hierarchy of `controller`; the root where that is not known."""
    memberships = proc / "self" / "cgroup"
    for line in memberships.read_text().splitlines() if memberships.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return PurePosixPath(path)
    return PurePosixPath("/")


def _group_directories(root: Path, group: PurePosixPath) -> Iterator[Path]:
    """Returns the directories of the group and of the groups above it, the root always included.

    A container may see its own group as the root, and yet be told the group's path on the host, or a path that leads
    out of what the container sees.
    """
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


def _quota_in_cores(*paths: Path) -> float | None:
    """Returns the quota in cores. The files must hold two numbers, the time that may be used in each period and the
    length of the period; returns None where they do not."""
    words = [word for path in paths for word in _read_words(path)]
    if len(words) != 2 or not all(word.isdigit() and int(word) > 0 for word in words):
        return None
    quota, period = map(int, words)
    return quota / period


def _read_number(path: Path) -> int | None:
    """Returns the file's number; None where the file is absent or says that there is no limit."""
    words = _read_words(path)
    return int(words[0]) if words and words[0].isdigit() else None


def _read_words(path: Path) -> list[str]:
    """Returns the file's words; an empty list where the file is absent."""
    return path.read_text().split() if path.is_file() else []


def _read_fields(path: Path) -> dict[str, int]:
    """Returns the numbers of a file whose lines hold a name and a number; an empty dict where the file is absent."""
    words = _read_words(path)
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}
