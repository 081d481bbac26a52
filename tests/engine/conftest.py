"""The fixture for engines over tiny models, with small contexts, few blocks and any drafters."""

from __future__ import annotations

import pytest

from tests.engine.engine_factory import EngineFactory
from tests.support.tiny_gguf import TinyPair


@pytest.fixture(scope="session")
def engines(tiny_pair: TinyPair) -> EngineFactory:
    """Returns a factory of engines over the tiny pair, which is loaded once."""
    return EngineFactory(tiny_pair)
