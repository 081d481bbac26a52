"""Starts one server and one browser for all tests, and gives each test a page of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

MODEL = "smollm2-135m"
PACELINE = Path(__file__).parents[2] / ".venv" / "bin" / "paceline"
STOP_TIMEOUT_S = 30.0
TIMEOUT_MS = 60_000


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """Yields the address of a running server, without a path; ends the server after the last test."""
    command = [str(PACELINE), "serve", MODEL, "--port", "0", "--log-format", "json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = _wait_ready(process)
            assert process.stderr is not None
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield url.removesuffix("/v1")
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Yields Debian's chromium without a window."""
    path = shutil.which("chromium")
    assert path is not None, "there is no chromium: install Debian's package chromium"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, chromium_sandbox=False)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, server_url: str) -> Iterator[Page]:
    """Yields the playground, loaded."""
    with browser.new_context() as context:
        opened = context.new_page()
        opened.set_default_timeout(TIMEOUT_MS)
        opened.goto(server_url)
        yield opened


def _wait_ready(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    log = []
    for line in process.stderr:
        log.append(line)
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "ready":
            return str(event["url"])
    raise AssertionError(f"the server ended before it was ready; its log is\n{''.join(log)}")
