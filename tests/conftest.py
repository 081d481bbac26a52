"""Fixtures shared by all tests: real models, pulled once into the per-user cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.checkpoint import resolve_model


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2 135M (98 MB), the real model of the main suite."""
    return resolve_model("smollm2-135m").path


@pytest.fixture(scope="session")
def coder_target_path() -> Path:
    """Qwen2.5 Coder 1.5B (1.1 GB); for tests marked `large`."""
    return resolve_model("qwen2.5-coder-1.5b").path


@pytest.fixture(scope="session")
def coder_draft_path() -> Path:
    """Qwen2.5 Coder 0.5B (491 MB), the draft of the 1.5B; for tests marked `large`."""
    return resolve_model("qwen2.5-coder-0.5b").path


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma 3 270M (253 MB); for tests marked `large`."""
    return resolve_model("gemma3-270m").path
