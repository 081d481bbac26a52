"""How much memory this process can take."""

from __future__ import annotations

from pathlib import Path

from paceline.machine.control_groups import free_in_control_groups_bytes


def available_memory_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Returns the bytes that can be allocated without swapping: the machine's free memory, or what the control groups
    leave where that is less."""
    fields = dict(line.split(":", 1) for line in (proc / "meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    free_in_groups = free_in_control_groups_bytes(proc, cgroup)
    return available if free_in_groups is None else min(available, free_in_groups)
