"""`SecretReference`: says where a secret is. Settings contain only such references, so no settings file, log or
snapshot contains a secret itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from paceline.core.errors import ConfigError

_ENVIRONMENT, _FILE = "env:", "file:"


def _check_reference(value: str) -> str:
    for prefix in (_ENVIRONMENT, _FILE):
        if value.startswith(prefix) and value != prefix:
            return value
    raise ValueError("say where the secret is, as env:NAME or file:PATH")


SecretReference = Annotated[str, AfterValidator(_check_reference)]
"""`env:NAME` for an environment variable, or `file:PATH` for a file that contains only the secret."""


def read_secret(reference: str) -> str:
    """Returns the secret; raises ConfigError if it is missing or empty, or if its file cannot be read."""
    if reference.startswith(_ENVIRONMENT):
        name = reference.removeprefix(_ENVIRONMENT)
        if not (value := os.environ.get(name, "").strip()):
            raise ConfigError(f"the environment variable {name} is not set")
        return value
    path = Path(reference.removeprefix(_FILE))
    try:
        path = path.expanduser()
        value = path.read_text(encoding="utf-8").strip()
    except (OSError, RuntimeError, ValueError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"the file {path} cannot be read ({cause})") from error
    if not value:
        raise ConfigError(f"the file {path} is empty")
    return value
