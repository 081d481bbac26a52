"""Fixtures of the gateway's tests: a server with a tiny pair, shared by all tests that do not change its state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.config import EngineConfig
from tests.gateway.server_process import ServerProcess
from tests.support.tiny_gguf import TinyPair, write_tiny_pair


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """Returns a target and its draft model."""
    return write_tiny_pair(
        tmp_path_factory.mktemp("pair"), hidden_size=64, head_dim=16, ffn_size=128, weight_type="Q8_0"
    )


@pytest.fixture(scope="session")
def engine_config(tiny_pair: TinyPair) -> EngineConfig:
    """Returns settings for the tiny pair on one thread, with a context of 256 tokens, and with fixed drafting."""
    return EngineConfig(
        model=str(tiny_pair.target),
        draft_model=str(tiny_pair.draft),
        context_window_size=256,
        max_batch_size=4,
        num_threads=1,
        speculation="fixed",
        num_speculative_tokens=7,
    )


@pytest.fixture(scope="session")
def server(engine_config: EngineConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Yields a running server."""
    directory: Path = tmp_path_factory.mktemp("server")
    with ServerProcess(directory, engine_config) as process:
        yield process.wait_ready()
