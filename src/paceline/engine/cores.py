"""How many cores an engine may use where the settings do not say."""

from __future__ import annotations

import os
from pathlib import Path

from paceline.engine.control_groups import cores_in_control_groups


def num_usable_cores(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that the process may run on, or what the control groups allow of their time where that is less."""
    num_cores = len(os.sched_getaffinity(0))
    allowed = cores_in_control_groups(proc, cgroup)
    return num_cores if allowed is None else min(num_cores, allowed)
