"""Starts the one server that all tests of clients share, as a process, because their environment has no Paceline."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

MODEL = "qwen2.5-coder-0.5b"
PACELINE = Path(__file__).parents[2] / ".venv" / "bin" / "paceline"
STOP_TIMEOUT_S = 30.0


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """Yields the address of a running server, `/v1` included; ends the server after the last test."""
    command = [str(PACELINE), "serve", MODEL, "--port", "0", "--log-format", "json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = _wait_ready(process)
            assert process.stderr is not None
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield url
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


def _wait_ready(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    log = []
    for line in process.stderr:
        log.append(line)
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "ready":
            return str(event["url"])
    raise AssertionError(f"the server ended before it was ready; its log is\n{''.join(log)}")
