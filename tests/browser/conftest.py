"""Starts one server and one browser for all tests, and gives each test a page of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.served_model import served_model

MODEL = "smollm2-135m"
TIMEOUT_MS = 60_000


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """Yields the address of a running server, without a path; ends the server after the last test."""
    with served_model(MODEL) as events:
        yield str(events["ready"]["url"]).removesuffix("/v1")


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
