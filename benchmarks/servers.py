"""Starts the servers that benchmarks measure, as processes: Paceline's, and llama.cpp's from package `xllamacpp`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class RunningServer:
    """A server that answers at `url` (which ends before `/v1`), and how long its start took."""

    url: str
    process: subprocess.Popen[str]
    startup_s: float


@contextmanager
def paceline_server(model: str, *options: str) -> Iterator[RunningServer]:
    """`paceline serve` at a free port; raises RuntimeError where it ends before it is ready."""
    command = [str(Path(sys.executable).with_name("paceline")), "serve", model, "--port", "0", "--log-format", "json"]
    start_s = time.monotonic()
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
        try:
            url = _wait_ready(process).removesuffix("/v1")
            startup_s = time.monotonic() - start_s
            assert process.stderr is not None
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield RunningServer(url, process, startup_s)
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


@contextmanager
def llama_cpp_server(path: Path, *, num_threads: int, context_size: int) -> Iterator[RunningServer]:
    """llama.cpp's server on a GGUF file, with one slot."""
    arguments = [str(path), str(num_threads), str(context_size)]
    start_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", _LLAMA_CPP, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("address "):
                yield RunningServer(line.split()[1], process, time.monotonic() - start_s)
                break
        else:
            raise RuntimeError("the llama.cpp server did not start")
        process.terminate()
        process.communicate(timeout=STOP_TIMEOUT_S)


def _wait_ready(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    line = ""
    for line in process.stderr:
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "ready":
            return event["url"]
        if time.monotonic() > deadline_s:
            break
    raise RuntimeError(f"paceline serve did not become ready; its last line is {line.strip()!r}")


_LLAMA_CPP = """
import sys
import xllamacpp
path, num_threads, context_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params = xllamacpp.CommonParams()
params.model.path = path
params.n_ctx = context_size
params.n_parallel = 1
params.n_gpu_layers = 0
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = num_threads
params.port = 0
params.verbosity = 1
server = xllamacpp.Server(params)
print("address", server.listening_address, flush=True)
sys.stdin.read()
"""
