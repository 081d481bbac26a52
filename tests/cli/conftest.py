"""Fixtures that run the installed command as a real process, with tiny models and a cache of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("paceline")

RunCommand = Callable[..., subprocess.CompletedProcess[str]]
RunOnBytes = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def paceline_on_bytes(tmp_path: Path) -> RunOnBytes:
    """Returns a function that runs `paceline` with arguments in the test's own directory.

    `stdin` is its standard input; its output is returned as bytes.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
    environment |= {"PACELINE_CACHE_DIR": str(tmp_path / "cache"), "COLUMNS": "120"}

    def run(*arguments: object, stdin: bytes = b"", **variables: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [str(COMMAND), *(argument if isinstance(argument, bytes) else str(argument) for argument in arguments)],
            input=stdin,
            capture_output=True,
            cwd=tmp_path,
            env=environment | variables,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def paceline(paceline_on_bytes: RunOnBytes) -> RunCommand:
    """Returns a function that does what `paceline_on_bytes` does, with text as input and output."""

    def run(*arguments: object, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        result = paceline_on_bytes(*arguments, stdin=stdin.encode(), **variables)
        stdout, stderr = (output.decode() for output in (result.stdout, result.stderr))
        return subprocess.CompletedProcess(result.args, result.returncode, stdout, stderr)

    return run
