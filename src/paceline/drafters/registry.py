"""The kinds of drafters by name: Paceline's own, and those that other installed packages offer.

A package offers a kind as an entry point of the group `paceline.drafters`. The entry point has the drafter's name, and
its value is a `DrafterKind` class. A kind is imported only when it is asked for by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING

from paceline.core.errors import ConfigError

if TYPE_CHECKING:
    from paceline.drafters.protocol import DrafterKind

ENTRY_POINT_GROUP = "paceline.drafters"

_BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "suffix": "paceline.drafters.suffix.kind:SuffixKind",
        "ngram": "paceline.drafters.ngram:NgramKind",
        "grammar": "paceline.drafters.grammar:GrammarKind",
        "shared-layers": "paceline.drafters.shared_layers:SharedLayersKind",
        "draft-model": "paceline.drafters.draft_model.kind:DraftModelKind",
    }
)


def built_in_names() -> tuple[str, ...]:
    """Returns the names of Paceline's own drafters."""
    return tuple(_BUILT_IN)


def drafter_names() -> tuple[str, ...]:
    """Returns all names that `find_drafter_kind` knows; imports none of the drafters."""
    others = {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)} - _BUILT_IN.keys()
    return (*_BUILT_IN, *sorted(others))


def find_drafter_kind(name: str) -> DrafterKind:
    """Returns the kind with this name. Raises ConfigError if the name is unknown, or if its entry point cannot be
    loaded or is not a kind of this name."""
    if name in _BUILT_IN:
        module, _, class_name = _BUILT_IN[name].partition(":")
        kind: DrafterKind = getattr(import_module(module), class_name)()
        return kind
    entry = next(iter(entry_points(group=ENTRY_POINT_GROUP, name=name)), None)
    if entry is None:
        raise ConfigError(f"there is no drafter named {name!r}; choose from {', '.join(drafter_names())}")
    return _load(entry)


def _load(entry: EntryPoint) -> DrafterKind:
    from paceline.drafters.protocol import DrafterKind

    place = f"the drafter {entry.name!r}, which {entry.value} offers,"
    try:
        kind = entry.load()()
    except Exception as error:
        raise ConfigError(f"{place} cannot be loaded: {error or type(error).__name__}") from error
    if not isinstance(kind, DrafterKind) or getattr(kind, "name", None) != entry.name:
        raise ConfigError(f"{place} is not a DrafterKind of that name")
    return kind
