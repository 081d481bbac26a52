"""Runs `paceline serve` for tests whose own environment has no Paceline. It needs only the standard library."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACELINE = Path(__file__).parents[2] / ".venv" / "bin" / "paceline"
STOP_TIMEOUT_S = 30.0

Events = dict[str, dict[str, Any]]


@contextmanager
def served_model(model: str, *options: str) -> Iterator[Events]:
    """Runs a server of this model, and yields what it has logged when it was ready, by event."""
    command = [str(PACELINE), "serve", model, "--port", "0", "--log-format", "json", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            events = _wait_ready(process)
            assert process.stderr is not None
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield events
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


def _wait_ready(process: subprocess.Popen[str]) -> Events:
    assert process.stderr is not None
    log = []
    events: Events = {}
    for line in process.stderr:
        log.append(line)
        event = json.loads(line) if line.startswith("{") else {}
        events[event.get("event", "")] = event
        if "ready" in events:
            return events
    raise AssertionError(f"the server ended before it was ready; its log is\n{''.join(log)}")
