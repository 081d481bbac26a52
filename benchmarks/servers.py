"""Starts the servers that benchmarks measure, each in a process: Paceline's, and llama.cpp's (a wheel or a build)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.1


@dataclass(frozen=True)
class RunningServer:
    """A server that answers at `url` (the part before `/v1`), and how long its start took."""

    url: str
    process: subprocess.Popen[str]
    startup_s: float


@contextmanager
def paceline_server(model: str, *options: str) -> Iterator[RunningServer]:
    """Runs `paceline serve` at a free port. Raises RuntimeError if it ends before it is ready."""
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
def llama_cpp_server(path: Path, *, num_threads: int, context_size: int, num_slots: int = 1) -> Iterator[RunningServer]:
    """Runs llama.cpp's server from the package `xllamacpp` on a GGUF file, with `context_size` tokens for each slot."""
    arguments = [str(path), str(num_threads), str(context_size * num_slots), str(num_slots)]
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


@contextmanager
def llama_cpp_binary_server(
    binary: Path, path: Path, *options: str, num_threads: int, context_size: int, num_slots: int = 1
) -> Iterator[RunningServer]:
    """Runs a locally built `llama-server`. Raises RuntimeError if it ends before it is ready."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    sizes = ["-t", str(num_threads), "-c", str(context_size * num_slots), "-np", str(num_slots)]
    command = [str(binary), "-m", str(path), *sizes, "--host", "127.0.0.1", "--port", str(port), *options]
    start_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as directory,
        Path(directory, "log").open("w+", encoding="utf-8") as log,
        subprocess.Popen(
            command, env=_library_environment(binary, Path(directory)), stdout=log, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        try:
            while not _is_healthy(url):
                if process.poll() is not None or time.monotonic() - start_s > READY_TIMEOUT_S:
                    last_lines = Path(log.name).read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
                    raise RuntimeError(f"{binary} did not become ready; it says {' / '.join(last_lines)!r}")
                time.sleep(POLL_INTERVAL_S)
            yield RunningServer(url, process, time.monotonic() - start_s)
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


def _library_environment(binary: Path, directory: Path) -> dict[str, str]:
    """The environment in which a binary finds the libraries beside it; packages lose the links to their versions, so
    `directory` gets those that are missing."""
    for library in binary.resolve().parent.glob("lib*.so.*.*.*"):
        name, version = library.name.split(".so.")
        (directory / f"{name}.so.{version.split('.')[0]}").symlink_to(library)
    paths = [str(binary.resolve().parent), str(directory), os.environ.get("LD_LIBRARY_PATH", "")]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths))}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5.0).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _wait_ready(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    line = ""
    for line in process.stderr:
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "ready":
            return str(event["url"])
        if time.monotonic() > deadline_s:
            break
    raise RuntimeError(f"paceline serve did not become ready; its last line is {line.strip()!r}")


_LLAMA_CPP = """
import sys
import xllamacpp
path, num_threads, context_size, num_slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
params = xllamacpp.CommonParams()
params.model.path = path
params.n_ctx = context_size
params.n_parallel = num_slots
params.n_gpu_layers = 0
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = num_threads
params.port = 0
params.verbosity = 1
server = xllamacpp.Server(params)
print("address", server.listening_address, flush=True)
sys.stdin.read()
"""
