"""`ServerProcess`: runs `paceline.gateway.serve` in its own process, and reads its log while it is written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families

from paceline.config import EngineConfig, ServerConfig

PATIENCE_S = 120.0
_SCRIPT = """
import json
import sys
from paceline.config import EngineConfig, ServerConfig
from paceline.core.errors import PacelineError
from paceline.gateway import serve

try:
    engines = [EngineConfig.model_validate(one) for one in json.loads(sys.argv[1])]
    serve(engines, ServerConfig.model_validate_json(sys.argv[2]))
except PacelineError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Waits for the condition and returns its first true value; fails if that takes absurdly long."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited in vain until {what}")


def is_alive(process_id: int) -> bool:
    """Returns whether the process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


class ServerProcess:
    """A server with `num_engines` engines of the same settings. Leaving the context ends it.

    Its model cache is in `directory`, and its sockets are in `temporary_dir`.
    """

    def __init__(
        self, directory: Path, engine: EngineConfig, server: ServerConfig | None = None, *, num_engines: int = 1
    ) -> None:
        settings = (server or ServerConfig(port=0)).model_copy(update={"log_format": "json"})
        self._temporary_dir = tempfile.TemporaryDirectory(prefix="pl-")  # short, because sockets' paths must be short
        self.temporary_dir = Path(self._temporary_dir.name)
        environment = {**os.environ, "TMPDIR": str(self.temporary_dir), "PACELINE_CACHE_DIR": str(directory / "cache")}
        engines = json.dumps([engine.model_dump(mode="json")] * num_engines)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _SCRIPT,
                engines,
                settings.model_dump_json(),
            ],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read_log)
        self._reader.start()

    def events(self, name: str) -> list[dict[str, Any]]:
        """Returns the log's entries for this event."""
        entries = [json.loads(line) for line in list(self.log) if line.startswith("{")]
        return [entry for entry in entries if entry["event"] == name]

    def wait_ready(self) -> Self:
        """Returns when the log says that the server is ready; fails if the server ends before."""
        wait_until(lambda: self.events("ready") or self.process.poll() is not None, "the server is ready")
        assert self.process.poll() is None, "\n".join(self.log)
        return self

    @property
    def url(self) -> str:
        """The server's address without the path."""
        url: str = self.events("ready")[0]["url"]
        return url.removesuffix("/v1")

    @property
    def engine_process_id(self) -> int:
        """The process id of the latest engine."""
        process_id: int = self.events("engine starting")[-1]["process_id"]
        return process_id

    def metrics(self) -> dict[str, float]:
        """Returns the samples of /metrics by name; samples with different labels are added up."""
        text = httpx.get(f"{self.url}/metrics", timeout=PATIENCE_S).text
        totals: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
        return totals

    def wait_for_end(self) -> int:
        """Waits until the process has ended and its whole log is read; returns the exit code."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.wait_for_end()
        self._temporary_dir.cleanup()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            self.log.extend(iter(stream.readline, ""))
