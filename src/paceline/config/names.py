"""The names of settings: their sections in a file, and other names by which people know them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from paceline.config.schema import ModelSettings, ServerConfig, SpeculationSettings

MODE = "mode"
"""What the setting `speculation` is called within the section of that name."""

SECTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "engine": tuple(ModelSettings.model_fields),
        "speculation": tuple(SpeculationSettings.model_fields),
        "server": tuple(ServerConfig.model_fields),
    }
)
"""The settings of each section."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "model_path": "model",
        "draft_model_path": "draft_model",
        "speculation_window": "num_speculative_tokens",
        "speculative_tokens": "num_speculative_tokens",
        "max_context_length": "context_window_size",
    }
)
"""Names that deployment guides and other engines use, understood wherever the setting's own is."""

COORDINATION: Mapping[str, str] = MappingProxyType(
    {
        "speculation_window": "num_speculative_tokens",
        "batch_size": "max_batch_size",
        "fallback_threshold": "fallback_threshold",
    }
)
"""The keys of the section `coordination`, as deployment guides write it."""

SETTINGS = frozenset(name for names in SECTIONS.values() for name in names)
