"""`ModelCache`: the per-user directory of pulled models, with a record and a lock for each.

A model is installed once its record exists; the record is written last and atomically. `store` fetches the files.

    <cache>/models/<name>/<file>.gguf, record.json     <cache>/downloads/<name>/ (unfinished)     <cache>/locks/<name>
"""

from __future__ import annotations

import fcntl
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from paceline.checkpoint.atomic_file import write_atomically
from paceline.checkpoint.user_paths import expand_user, find_home
from paceline.core.errors import CheckpointError, ModelNotFoundError, UsageError

_RECORD_NAME = "record.json"
_MAX_DIRECTORY_NAME_LENGTH = 240
_logger = logging.getLogger(__name__)


class StoredFile(msgspec.Struct, frozen=True):
    """A file in a model's directory, with the sha256 that was verified when it was placed there."""

    name: str
    size_bytes: int
    sha256: str


class _Record(msgspec.Struct, frozen=True):
    name: str
    source: str
    files: list[StoredFile]


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model in the cache: `path` is its (first) file, `source` says where it came from."""

    name: str
    path: Path
    source: str
    files: tuple[StoredFile, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return sum(file.size_bytes for file in self.files)


def default_cache_dir(environment: Mapping[str, str]) -> Path:
    """Returns `PACELINE_CACHE_DIR`, or `paceline` in the user's cache directory (XDG).

    Raises UsageError if no environment variable names a directory and the user has no home directory.
    """
    if chosen := environment.get("PACELINE_CACHE_DIR"):
        return expand_user(chosen)
    if user_cache := environment.get("XDG_CACHE_HOME"):
        return Path(user_cache) / "paceline"
    home = find_home(environment)
    if home is None:
        raise UsageError("this user has no home directory to keep models in; set PACELINE_CACHE_DIR to a directory")
    return home / ".cache" / "paceline"


def tokenizer_cache_dir(environment: Mapping[str, str]) -> Path:
    """Returns the directory where tokenizers keep what is slow to derive from a model file."""
    return default_cache_dir(environment) / "tokenizers"


class ModelCache:
    """The models below `directory`, which is created when it is first needed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, name: str) -> InstalledModel | None:
        """Returns the installed model of that name; None where it or one of its files is absent. Reads no model data.

        Raises CheckpointError for a malformed record.
        """
        return self._read(self._model_dir(name)) if _is_possible(name) else None

    def installed(self) -> list[InstalledModel]:
        """Returns all installed models, sorted by name; leaves out those with a malformed record, with a warning."""
        directories = self._models_dir.iterdir() if self._models_dir.is_dir() else iter(())
        models = [self._read_or_warn(directory) for directory in directories]
        return sorted((model for model in models if model is not None), key=lambda model: model.name)

    def install(self, name: str, source: str, files: list[tuple[Path, str]]) -> InstalledModel:
        """Moves verified files into the model's directory. `files` lists them in order, each with its sha256.

        The files must be on the cache's file system (see `workspace`), and the caller must hold `lock`.
        """
        directory = self._model_dir(name)
        directory.mkdir(parents=True, exist_ok=True)
        stored = [StoredFile(path.name, path.stat().st_size, sha256) for path, sha256 in files]
        for path, _ in files:
            path.replace(directory / path.name)
        record = msgspec.json.encode(_Record(name, source, stored))
        write_atomically(directory / _RECORD_NAME, msgspec.json.format(record))
        return InstalledModel(name, directory / stored[0].name, source, tuple(stored))

    def remove(self, name: str) -> None:
        """Deletes the model and its unfinished downloads; raises ModelNotFoundError where there are neither."""
        directories = [self._model_dir(name), self._workspace_dir(name)] if _is_possible(name) else []
        if not any(directory.is_dir() for directory in directories):
            known = ", ".join(model.name for model in self.installed()) or "nothing"
            raise ModelNotFoundError(f"model {name!r} is not installed; installed: {known}")
        with self.lock(name):
            for directory in filter(Path.is_dir, directories):
                shutil.rmtree(directory)

    def workspace(self, name: str) -> Path:
        """Returns the directory for unfinished downloads of a model; the next pull resumes what is left there."""
        directory = self._workspace_dir(name)
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Holds the lock of a model. Only one thread of one process can hold it; others block until it is free."""
        path = self.directory / "locks" / _directory_name(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @property
    def _models_dir(self) -> Path:
        return self.directory / "models"

    def _model_dir(self, name: str) -> Path:
        return self._models_dir / _directory_name(name)

    def _workspace_dir(self, name: str) -> Path:
        return self.directory / "downloads" / _directory_name(name)

    def _read_or_warn(self, directory: Path) -> InstalledModel | None:
        try:
            return self._read(directory)
        except CheckpointError as error:
            _logger.warning("%s", error)
            return None

    def _read(self, directory: Path) -> InstalledModel | None:
        path = directory / _RECORD_NAME
        if not path.is_file():
            return None
        try:
            record = msgspec.json.decode(path.read_bytes(), type=_Record)
        except msgspec.MsgspecError as error:
            name = unquote(directory.name)
            raise CheckpointError(
                f"{path}: the record is malformed ({error}); run paceline rm {name}, and pull the model again"
            ) from error
        if not record.files or not all(_is_intact(directory / file.name, file.size_bytes) for file in record.files):
            return None
        return InstalledModel(record.name, directory / record.files[0].name, record.source, tuple(record.files))


def _is_intact(path: Path, size_bytes: int) -> bool:
    return path.is_file() and path.stat().st_size == size_bytes


def _is_possible(name: str) -> bool:
    return 0 < len(_directory_name(name)) <= _MAX_DIRECTORY_NAME_LENGTH


def _directory_name(name: str) -> str:
    """Returns a file name that no other model name has; it is never hidden and never a path."""
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E", 1) if quoted.startswith(".") else quoted
