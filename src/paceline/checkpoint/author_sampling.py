"""Reads the sampling parameters that a model's author recommends, from the model file or from the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_PREFIX = "general.sampling."
_NAMES = MappingProxyType(
    {
        "temp": "temperature",
        "top_k": "top_k",
        "top_p": "top_p",
        "min_p": "min_p",
        "penalty_repeat": "repetition_penalty",
    }
)
"""The keys of GGUF files, as llama.cpp writes them, and the names of the same sampling parameters here."""


def author_sampling(metadata: Mapping[str, object], catalog: Mapping[str, float]) -> dict[str, float]:
    """Returns the recommended sampling parameters by name: those of the file, or those of the catalog if the file has
    none. Values in the file that are not numbers are skipped. `top_k` 0 is skipped too: it means all tokens."""
    found = {name: metadata.get(f"{_PREFIX}{key}") for key, name in _NAMES.items()}
    numbers = {
        name: value
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and (name, value) != ("top_k", 0)
    }
    return numbers or dict(catalog)
