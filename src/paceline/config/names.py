"""The names of settings: the sections they have in a file, and other names under which people know them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import get_args

from paceline.config.schema import ModelSettings, ServerConfig, SpeculationSettings
from paceline.config.secrets import SecretReference
from paceline.core.errors import ConfigError

MODE = "mode"
"""The name of the setting `speculation` inside the section `speculation`."""

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
        "threads": "num_threads",
        "offline": "is_offline",
        "warmup": "has_warmup",
        "grpc_reflection": "has_grpc_reflection",
    }
)
"""Other names of settings, which deployment guides, other engines and our own flags use. A settings file and the
environment may use them in place of the setting's own name."""

COORDINATION: Mapping[str, str] = MappingProxyType(
    {
        "speculation_window": "num_speculative_tokens",
        "batch_size": "max_batch_size",
        "fallback_threshold": "fallback_threshold",
    }
)
"""The keys of the section `coordination`, which deployment guides use, and the settings that they mean."""

SETTINGS = frozenset(name for names in SECTIONS.values() for name in names)

SECRETS = frozenset(
    name
    for section in (ModelSettings, SpeculationSettings, ServerConfig)
    for name, field in section.model_fields.items()
    if SecretReference in get_args(field.annotation)
)
"""The settings that refer to secrets. No message repeats their values."""


def setting_named(key: str, place: str) -> str:
    """Returns the setting that a key means, which may be its own name or another name.

    Raises ConfigError for an unknown key. The message has `place` (the key and where it was found) and names similar
    settings.
    """
    name = ALIASES.get(key, key)
    if name in SETTINGS:
        return name
    close = get_close_matches(key, [*SETTINGS, *ALIASES], n=2)
    advice = f"did you mean {' or '.join(close)}?" if close else "remove it or correct its name"
    raise ConfigError(f"{place} is not a setting: {advice}")
