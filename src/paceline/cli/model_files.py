"""Gets the model files that a command is about to load, with a progress bar; the engine then finds them in place."""

from __future__ import annotations

from paceline.cli.progress import PullProgress
from paceline.config import EngineConfig
from paceline.engine.loading import resolve_pair


def pull_models(config: EngineConfig) -> None:
    """Pulls the target and draft model that `config` means; raises ModelNotFoundError, DownloadError, ConfigError."""
    with PullProgress() as progress:
        resolve_pair(config, progress=progress)
