"""The processor's name, and how many of its cores an engine may use unless the settings say otherwise."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from paceline.machine.control_groups import cores_in_control_groups


def num_usable_cores(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Returns how many cores the process may run on, or the control groups' CPU quota in cores where that is less."""
    num_cores = len(os.sched_getaffinity(0))
    allowed = cores_in_control_groups(proc, cgroup)
    return num_cores if allowed is None else min(num_cores, allowed)


def cpu_name() -> str:
    """Returns the processor's name as Linux reports it, or else the architecture's name."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
