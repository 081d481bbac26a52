"""Starts the one server that all tests of clients share, as a process, because their environment has no Paceline."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.served_model import Events, served_model

MODEL = "qwen2.5-coder-0.5b"


@pytest.fixture(scope="session")
def server_events() -> Iterator[Events]:
    """Yields what a running server has logged when it was ready, by event; ends the server after the last test."""
    with served_model(MODEL, "--grpc-port", "0") as events:
        yield events


@pytest.fixture(scope="session")
def server_url(server_events: Events) -> str:
    """Returns the address of the server, `/v1` included."""
    return str(server_events["ready"]["url"])


@pytest.fixture(scope="session")
def grpc_address(server_events: Events) -> str:
    """Returns the address of the server's gRPC port."""
    return f"127.0.0.1:{server_events['grpc ready']['port']}"
