"""`Metadata`: typed access to the hyperparameters of a GGUF file, with errors that name key, value and file."""

from __future__ import annotations

import math

from paceline.checkpoint import GgufFile
from paceline.core.errors import CheckpointError, UnsupportedModelError


class Metadata:
    """Reads keys below a file's architecture: `size("block_count")` is llama.block_count in a llama file."""

    def __init__(self, gguf: GgufFile) -> None:
        self._values = gguf.metadata
        self.path = gguf.paths[0]
        architecture = self._values.get("general.architecture")
        if not isinstance(architecture, str):
            raise self._missing("general.architecture")
        self.architecture = architecture

    @property
    def model_name(self) -> str:
        """The name in the file's metadata, or else the name of the file."""
        name = self._values.get("general.name")
        return name if isinstance(name, str) and name else self.path.stem

    def optional_number(self, suffix: str) -> float | None:
        """Returns a finite number, or None where the key is absent; raises CheckpointError for other values."""
        key = self.key(suffix)
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise CheckpointError(f"{self.path}: metadata key {key!r} is {value!r}, not a number; the file is corrupt")
        return value

    def positive_number(self, suffix: str, default: float | None = None) -> float:
        """Returns a number above zero; raises CheckpointError for other values, and for an absent key without a
        default."""
        value = self.optional_number(suffix)
        if value is None:
            value = default
        if value is None:
            raise self._missing(self.key(suffix))
        if value <= 0:
            raise CheckpointError(f"{self.path}: metadata key {self.key(suffix)!r} is {value}; it must be above zero")
        return value

    def size(self, suffix: str, default: int | None = None) -> int:
        """Returns a whole number above zero. Raises UnsupportedModelError for a list of values, one per layer, and
        CheckpointError as `positive_number` does."""
        value = self._values.get(self.key(suffix))
        if value is not None and not isinstance(value, int | float | str | bool):
            raise UnsupportedModelError(
                f"{self.path}: metadata key {self.key(suffix)!r} has a value for each layer, which is not implemented; "
                "use another model"
            )
        number = self.positive_number(suffix, default)
        if number != int(number):
            raise CheckpointError(f"{self.path}: metadata key {self.key(suffix)!r} is {number}, not a whole number")
        return int(number)

    def optional_text(self, suffix: str) -> str | None:
        """Returns a string, or None where the key is absent; raises CheckpointError for other values."""
        value = self._values.get(self.key(suffix))
        if value is not None and not isinstance(value, str):
            raise CheckpointError(f"{self.path}: metadata key {self.key(suffix)!r} is {value!r}, not a string")
        return value

    def refuse(self, suffix: str, neutral: tuple[float, ...] = (0.0,)) -> None:
        """Raises UnsupportedModelError where the key has a value other than the `neutral` ones."""
        value = self._values.get(self.key(suffix))
        if value is not None and value not in neutral:
            raise UnsupportedModelError(
                f"{self.path}: metadata key {self.key(suffix)!r} is {value}, which is not implemented; "
                "use another model"
            )

    def key(self, suffix: str) -> str:
        """Returns the full metadata key."""
        return f"{self.architecture}.{suffix}"

    def _missing(self, key: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: metadata key {key!r} is missing; the file is incomplete, get it again")
