"""Finds the user's home directory. Not every user has one: a container may run under an id without a user's entry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paceline.core.errors import UsageError


def find_home(environment: Mapping[str, str]) -> Path | None:
    """Returns the home directory, None where neither `HOME` nor the user database has one."""
    if home := environment.get("HOME"):
        return Path(home)
    try:
        return Path.home()
    except RuntimeError:
        return None


def expand_user(path: str) -> Path:
    """Returns the path with a leading `~` or `~user` replaced; raises UsageError where that user has no home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{path}: {path.split('/', 1)[0]} has no home directory; write the whole path") from error
