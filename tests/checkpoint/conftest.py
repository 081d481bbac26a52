"""Fixtures for pulling from a local server instead of the machine's package indexes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.checkpoint.package_server import PackageServer, serving


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageServer]:
    """Yields an empty package server, which pip's settings name as the only index."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as server:
        monkeypatch.setenv("PIP_INDEX_URL", server.index_url)
        yield server
