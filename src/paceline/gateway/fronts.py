"""The fronts that the gateway can have. To add one, write its folder and name it here."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.errors import UsageError
from paceline.gateway.anthropic import routes as anthropic
from paceline.gateway.http.front import Front
from paceline.gateway.kserve import routes as kserve
from paceline.gateway.llama_server import routes as llama_server
from paceline.gateway.ollama import routes as ollama
from paceline.gateway.openai import routes as openai
from paceline.gateway.playground import routes as playground

_FRONTS = (playground.FRONT, anthropic.FRONT, openai.FRONT, ollama.FRONT, llama_server.FRONT, kserve.FRONT)
"""If two fronts own the beginning of a path, errors on it have the form of the first one."""


def front_names() -> list[str]:
    """Returns the names of all fronts."""
    return [front.name for front in _FRONTS]


def choose_fronts(names: Sequence[str] | None) -> list[Front]:
    """Returns the fronts with these names (None: all of them); raises UsageError for an unknown name."""
    if names is None:
        return list(_FRONTS)
    if unknown := set(names).difference(front_names()):
        raise UsageError(f"there is no front {min(unknown)!r}: choose from {', '.join(front_names())}")
    return [front for front in _FRONTS if front.name in names]
