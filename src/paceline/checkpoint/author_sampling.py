"""Reads the sampling parameters that a model's author recommends, from the model file or from the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

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
    none. Values in the file that are no numbers are skipped; the receiver checks their ranges."""
    found: dict[str, float] = {}
    for key, name in _NAMES.items():
        value = metadata.get(_PREFIX + key)
        if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
            found[name] = int(value) if name == "top_k" else float(value)
    return found or dict(catalog)
