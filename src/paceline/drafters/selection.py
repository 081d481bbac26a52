"""Decides which drafters run and which model files they need, from the settings alone, before a model is opened.

The kinds come from the registry. This module names none of them, and it does not load the native core.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.checkpoint import ProgressListener, ResolvedModel, resolve_model
from paceline.config import EngineConfig
from paceline.core.errors import ConfigError
from paceline.drafters.protocol import DrafterKind
from paceline.drafters.registry import built_in_names, find_drafter_kind


@dataclass(frozen=True, slots=True)
class ResolvedPair:
    """The files of a target and its draft model (None without one), and the drafters that can run."""

    target: ResolvedModel
    draft: ResolvedModel | None
    drafter_names: tuple[str, ...]


def find_model(name: str, config: EngineConfig, progress: ProgressListener | None = None) -> ResolvedModel:
    """Returns the file of a model. Pulls it if it is absent and `config` allows. Raises what `resolve_model` raises."""
    return resolve_model(name, is_offline=config.is_offline, read_hub_token=config.read_hub_token, progress=progress)


def resolve_pair(config: EngineConfig, *, progress: ProgressListener | None = None) -> ResolvedPair:
    """Returns the files of the models that `config` names, and pulls those that are absent.

    Raises ModelNotFoundError or DownloadError. Raises ConfigError for drafters that cannot run; the settings of named
    drafters are checked before anything is pulled.
    """
    for kind in kinds_of(config.drafters or ()):
        kind.check_settings(config)
    target = find_model(config.model, config, progress)
    names = choose_drafters(config, target.default_draft_name)
    if not any(kind.uses_draft_model for kind in kinds_of(names)):
        return ResolvedPair(target, None, names)
    return ResolvedPair(
        target, find_model(config.draft_model or str(target.default_draft_name), config, progress), names
    )


def choose_drafters(config: EngineConfig, default_draft_name: str | None) -> tuple[str, ...]:
    """Returns the drafters to run: those that the settings name, else all that are default with these settings.

    Raises ConfigError for an unknown drafter, and for draft-model if no draft model is known.
    """
    has_draft_model = config.draft_model is not None or default_draft_name is not None
    for kind in kinds_of(config.drafters or ()):
        if kind.uses_draft_model and not has_draft_model:
            raise ConfigError(f"no draft model is known for {config.model}; name one with --draft-model")
    if config.num_speculative_tokens == 0 or config.speculation == "off":
        return ()
    if config.drafters is not None:
        return config.drafters
    kinds = [find_drafter_kind(name) for name in built_in_names()]
    return tuple(kind.name for kind in kinds if kind.is_default(config, has_draft_model=has_draft_model))


def without_constraint_drafters(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the drafters that draft for requests without a constraint too."""
    return tuple(kind.name for kind in kinds_of(names) if not kind.needs_constraint)


def kinds_of(names: tuple[str, ...]) -> list[DrafterKind]:
    """Returns the kinds of these drafters: Paceline's own in the registry's order, then the others."""
    own = [name for name in built_in_names() if name in names]
    return [find_drafter_kind(name) for name in (*own, *(name for name in names if name not in own))]
