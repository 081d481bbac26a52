"""Engines over tiny models: small contexts, few blocks, any drafters."""

from __future__ import annotations

import pytest

from tests.engine.engine_factory import EngineFactory
from tests.support.tiny_gguf import TinyPair, write_tiny_pair


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """A target and a draft model that often agree."""
    return write_tiny_pair(tmp_path_factory.mktemp("engine"), "qwen2", "Q4_K")


@pytest.fixture(scope="session")
def engines(tiny_pair: TinyPair) -> EngineFactory:
    """Makes engines over the tiny pair, which is loaded once."""
    return EngineFactory(tiny_pair)
