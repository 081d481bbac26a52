"""Fixtures that all tests share: real models, which are pulled once into the user's cache, and a tiny pair."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.checkpoint import resolve_model
from paceline.config import EngineConfig
from tests.support.tiny_gguf import TinyPair, write_tiny_pair


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """Returns the file of SmolLM2 135M (98 MB), the real model of the main suite."""
    return resolve_model("smollm2-135m").path


@pytest.fixture(scope="session")
def coder_target_path() -> Path:
    """Returns the file of Qwen2.5 Coder 1.5B (1.1 GB); for tests marked `large`."""
    return resolve_model("qwen2.5-coder-1.5b").path


@pytest.fixture(scope="session")
def coder_draft_path() -> Path:
    """Returns the file of Qwen2.5 Coder 0.5B (491 MB), the draft model of the 1.5B; for tests marked `large`."""
    return resolve_model("qwen2.5-coder-0.5b").path


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Returns the file of Gemma 3 270M (253 MB); for tests marked `large`."""
    return resolve_model("gemma3-270m").path


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    """Returns a target and a draft model that often agree."""
    return write_tiny_pair(tmp_path_factory.mktemp("pair"), "qwen2", "Q4_K")


@pytest.fixture
def pair_config(tiny_pair: TinyPair) -> EngineConfig:
    """Returns the settings that load the tiny pair."""
    return EngineConfig(model=str(tiny_pair.target), draft_model=str(tiny_pair.draft), context_window_size=1024)
