"""The error tree: everything Paceline raises on purpose is a `PacelineError`.

A message says what happened, which value, and what to do; lower case, no full stop. The command line maps
`UsageError` to exit code 2 and the rest to 1; the gateway maps `InvalidRequestError` to 400 with its `param`.
"""

from __future__ import annotations


class PacelineError(Exception):
    """Base of all errors raised on purpose."""


class UsageError(PacelineError):
    """A command or setting was used wrongly."""


class ConfigError(UsageError):
    """A setting is unknown or has a value that cannot work."""


class ModelNotFoundError(UsageError):
    """No catalog entry, file or repository has this name."""


class DownloadError(PacelineError):
    """No mirror delivered a model file."""


class ChecksumError(DownloadError):
    """A downloaded file differs from the published sha256."""


class CheckpointError(PacelineError):
    """A model file is truncated, corrupt or malformed."""


class UnsupportedModelError(CheckpointError):
    """A model file is sound but uses an architecture, weight type or option that is not implemented."""


class VocabularyMismatchError(UsageError):
    """A draft model's vocabulary has too little in common with the target's."""


class InsufficientMemoryError(UsageError):
    """Weights or KV cache do not fit in memory."""


class InvalidRequestError(PacelineError):
    """A request cannot be honoured; `param` names the offending field, `code` is a stable word for programs."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ContextOverflowError(InvalidRequestError):
    """A prompt (plus one token) is longer than the context window."""
