"""Paceline: serves open-weight language models with lossless speculative decoding.

`from paceline import Engine, EngineConfig, SamplingParams` is the in-process interface; the command line is `paceline`.
Importing the package itself loads nothing else: each exported name loads its module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.config import EngineConfig
    from paceline.core import FinishReason, Output, SamplingParams, SpeculationParams
    from paceline.core.errors import PacelineError
    from paceline.engine import Completion, Engine

    __version__: str

__all__ = [
    "Completion",
    "Engine",
    "EngineConfig",
    "FinishReason",
    "Output",
    "PacelineError",
    "SamplingParams",
    "SpeculationParams",
    "__version__",
]

_MODULES = MappingProxyType(
    {
        "Completion": "paceline.engine",
        "Engine": "paceline.engine",
        "EngineConfig": "paceline.config",
        "FinishReason": "paceline.core",
        "Output": "paceline.core",
        "PacelineError": "paceline.core.errors",
        "SamplingParams": "paceline.core",
        "SpeculationParams": "paceline.core",
    }
)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _installed_version()
    if name not in _MODULES:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _installed_version() -> str:
    """The version of the installed distribution; "0+unknown" in a source tree that was never installed."""
    try:
        return version("paceline")
    except PackageNotFoundError:
        return "0+unknown"
