"""Gets the model files that a command is about to load, with a progress bar; the engine then finds them in place.

Pulling loads nothing that only engines need, because the gateway's process does it too.
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
    """`pull_models` for models that are to answer `tasks`; raises UsageError where the target does not take them."""
    from paceline.cli.prompts import check_chats
    from paceline.engine.open_models import open_model

    resolved = pull_models(config)
    with open_model(resolved.target) as target:
        check_chats(target, (task.messages for task in tasks))
    return resolved
