"""Tests the thread pool when the system refuses to start more threads."""

from __future__ import annotations

import subprocess
import sys

LIMITED = """
import resource
from paceline.backends.native.model import ThreadPool

[used] = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")]
limit = used * 1024 + 100 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    ThreadPool(1000)
except RuntimeError as error:
    print(error)
print(ThreadPool(2).num_threads)
"""


def test_too_many_threads_are_refused_and_those_begun_end():
    finished = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=False, timeout=60)
    assert finished.returncode == 0, finished.stderr
    refusal, num_threads = finished.stdout.splitlines()
    assert refusal.endswith("of 1000 threads can run here; ask for fewer")
    assert num_threads == "2"
