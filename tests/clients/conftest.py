"""Starts the one server that all tests of clients share, as a process, because their environment has no Paceline."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MODEL = "qwen2.5-coder-0.5b"
PACELINE = Path(__file__).parents[2] / ".venv" / "bin" / "paceline"
STOP_TIMEOUT_S = 30.0


@pytest.fixture(scope="session")
def server_events() -> Iterator[dict[str, dict[str, Any]]]:
    """Yields what a running server has logged when it was ready, by event; ends the server after the last test."""
    command = [str(PACELINE), "serve", MODEL, "--port", "0", "--grpc-port", "0", "--log-format", "json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            events = _wait_ready(process)
            assert process.stderr is not None
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield events
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


@pytest.fixture(scope="session")
def server_url(server_events: dict[str, dict[str, Any]]) -> str:
    """Returns the address of the server, `/v1` included."""
    return str(server_events["ready"]["url"])


@pytest.fixture(scope="session")
def grpc_address(server_events: dict[str, dict[str, Any]]) -> str:
    """Returns the address of the server's gRPC port."""
    return f"127.0.0.1:{server_events['grpc ready']['port']}"


def _wait_ready(process: subprocess.Popen[str]) -> dict[str, dict[str, Any]]:
    assert process.stderr is not None
    log = []
    events: dict[str, dict[str, Any]] = {}
    for line in process.stderr:
        log.append(line)
        event = json.loads(line) if line.startswith("{") else {}
        events[event.get("event", "")] = event
        if "ready" in events:
            return events
    raise AssertionError(f"the server ended before it was ready; its log is\n{''.join(log)}")
