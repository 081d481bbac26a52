"""Finds backends by name. A backend's folder is imported when it is asked for, so that its libraries load only then."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from paceline.core.errors import ConfigError

if TYPE_CHECKING:
    from paceline.backends.protocol import BackendKind

_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "native": "paceline.backends.native.backend",
        "reference": "paceline.backends.reference.backend",
    }
)


def backend_names() -> tuple[str, ...]:
    """Returns the names that `find_backend` knows."""
    return tuple(_MODULES)


def find_backend(name: str) -> BackendKind:
    """Returns the backend of that name, which its module calls `KIND`; raises ConfigError for an unknown one."""
    if name not in _MODULES:
        raise ConfigError(f"there is no backend named {name!r}; choose from {', '.join(_MODULES)}")
    kind: BackendKind = import_module(_MODULES[name]).KIND
    return kind
