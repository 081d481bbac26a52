"""Runs a process that uses a share of one core in short pieces, like other work on a shared machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PERIOD_S = 0.01
STOP_TIMEOUT_S = 10.0

_BUSY = """
import sys, time
share, period_s = float(sys.argv[1]), float(sys.argv[2])
print("ready", flush=True)
while True:
    start_s = time.perf_counter()
    while time.perf_counter() < start_s + share * period_s:
        pass
    time.sleep((1 - share) * period_s)
"""


@contextmanager
def busy_process(share: float) -> Iterator[subprocess.Popen[str]]:
    """Runs the process until the context ends."""
    command = [sys.executable, "-c", _BUSY, str(share), str(PERIOD_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)
