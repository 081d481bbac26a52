"""A tiny pair of models for verification and benchmarks."""

from __future__ import annotations

import pytest

from paceline.config import EngineConfig
from tests.support.tiny_gguf import TinyPair, write_tiny_pair


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """A target and a draft model that often agree."""
    return write_tiny_pair(tmp_path_factory.mktemp("operations"), "qwen2", "Q4_K")


@pytest.fixture
def pair_config(tiny_pair: TinyPair) -> EngineConfig:
    """The settings that load the pair."""
    return EngineConfig(model=str(tiny_pair.target), draft_model=str(tiny_pair.draft), context_window_size=1024)
