"""Pulls the model files that a command is about to load, with a progress bar, before an engine needs them.

`serve` pulls in the gateway's process, so `pull_models` imports nothing that only engines need.
"""

from __future__ import annotations

from collections.abc import Iterable

from paceline.cli.progress import PullProgress
from paceline.config import EngineConfig
from paceline.drafters.selection import ResolvedPair, resolve_pair
from paceline.operations.workload import Task


def pull_models(config: EngineConfig) -> ResolvedPair:
    """Pulls the target and draft model that `config` means; raises ModelNotFoundError, DownloadError, ConfigError."""
    with PullProgress() as progress:
        return resolve_pair(config, progress=progress)


def pull_chat_models(config: EngineConfig, tasks: Iterable[Task]) -> ResolvedPair:
    """Pulls the models that shall answer `tasks`; raises UsageError if the target has no chat template that takes them.

    It also raises what `pull_models` raises.
    """
    from paceline.cli.prompts import check_chats
    from paceline.engine.open_models import open_model

    resolved = pull_models(config)
    with open_model(resolved.target) as target:
        check_chats(target, (task.messages for task in tasks))
    return resolved
