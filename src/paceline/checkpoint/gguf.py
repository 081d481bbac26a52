"""`GgufFile`: a memory-mapped GGUF model (one file or a split set) whose tensors are zero-copy views.

`gguf_header` decodes the header, and `dequantize` turns weights into floats. This module knows no architectures.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from paceline.checkpoint.ggml_type import GgmlType
from paceline.checkpoint.gguf_header import Header, HeaderReader, TensorDescription
from paceline.core.errors import CheckpointError, ModelNotFoundError, UnsupportedModelError

UInt8Array = npt.NDArray[np.uint8]

DEFAULT_ALIGNMENT = 32
_SMALLEST_FILE_SIZE_BYTES = 24
_FINGERPRINT_SIZE_BYTES = 16
_SAMPLED_SIZE_BYTES = 1024  # with so few and small samples, a fingerprint touches few pages of a cold file
_NUM_SAMPLES = 16  # of a tensor
_SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True, eq=False)
class GgufTensor:
    """A tensor as stored: `data` is a read-only uint8 [size in bytes] view into the file.

    `shape` is in numpy order, (rows, columns) for a matrix and (n,) for a vector; a row is `columns / type.block_size`
    blocks of `type.type_size_bytes`.
    """

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    data: UInt8Array


class GgufFile:
    """A GGUF model: `metadata` (numbers, strings, lists of strings, numpy arrays) and `tensors` by name.

    Call `open` to get one; it is a context manager. Views of tensors stay valid after `close`: the file is unmapped
    when the last of them is gone.
    """

    def __init__(self, shards: list[_Shard]) -> None:
        self._shards = shards
        self.metadata: Mapping[str, object] = shards[0].header.metadata
        self.tensors: dict[str, GgufTensor] = {}
        for shard in shards:
            for name, tensor in shard.tensors.items():
                if name in self.tensors:
                    raise CheckpointError(f"{shard.path}: tensor {name!r} is in an earlier part of the split too")
                self.tensors[name] = tensor
        self.paths = tuple(shard.path for shard in shards)
        self.size_bytes = sum(len(shard.mapping) for shard in shards)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Maps `path` and, where it is part of a split model, all its parts.

        Raises ModelNotFoundError, CheckpointError (truncated, corrupt), UnsupportedModelError (version, tensor type).
        """
        first = _Shard(Path(path))
        split_count = first.integer("split.count", default=1)
        if split_count <= 1:
            return cls([first])
        model = cls([_Shard(part) for part in _split_paths(first.path, split_count)])
        num_tensors = first.integer("split.tensors.count", default=len(model.tensors))
        if num_tensors != len(model.tensors):
            raise CheckpointError(
                f"{first.path}: the {split_count} parts hold {len(model.tensors)} tensors instead of {num_tensors}; "
                "pull the model again"
            )
        return model

    def fingerprint(self) -> str:
        """Returns a hash of the headers and of samples of each tensor, in 32 hexadecimal digits.

        It takes milliseconds. Other models have other fingerprints. A file with few changed numbers may have the same.
        """
        digest = hashlib.blake2b(digest_size=_FINGERPRINT_SIZE_BYTES)
        for shard in self._shards:
            digest.update(shard.mapping[: shard.header.size_bytes])
            for tensor in shard.tensors.values():
                size = len(tensor.data)
                for start in range(0, size, max(_SAMPLED_SIZE_BYTES, size // _NUM_SAMPLES)):
                    digest.update(tensor.data[start : start + _SAMPLED_SIZE_BYTES].tobytes())
                digest.update(tensor.data[-_SAMPLED_SIZE_BYTES:].tobytes())
        return digest.hexdigest()

    def release_pages(self, tensor: GgufTensor | None = None) -> None:
        """Drops the resident pages of `tensor` (None: of the whole model); a later access reads them from disk."""
        for shard in self._shards:
            if tensor is None:
                shard.mapping.madvise(mmap.MADV_DONTNEED)
            elif tensor.name in shard.tensors:
                shard.release_pages(tensor)

    def close(self) -> None:
        """Gives up this object's hold on the mapping; safe to call twice."""
        self._shards = []
        self.tensors = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Shard:
    """One mapped file of a model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mapping = _map_file(path)
        self._bytes: UInt8Array = np.frombuffer(self.mapping, np.uint8)
        self.header: Header = HeaderReader(self.mapping, len(self.mapping), str(path)).read()
        self._data_start = self._find_data_start()
        self.tensors: dict[str, GgufTensor] = {}
        for description in self.header.tensors:
            if description.name in self.tensors:
                raise CheckpointError(f"{path}: tensor {description.name!r} appears twice; the file is corrupt")
            self.tensors[description.name] = self._place(description)

    def integer(self, key: str, default: int) -> int:
        """Returns a metadata entry, or `default` where it is absent; raises CheckpointError if it is not an integer."""
        value = self.header.metadata.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise CheckpointError(
                f"{self.path}: metadata key {key!r} is {value!r}, not an integer; the file is corrupt"
            )
        return value

    def release_pages(self, tensor: GgufTensor) -> None:
        """Drops the resident pages that `tensor` touches."""
        offset = tensor.data.ctypes.data - self._bytes.ctypes.data
        start = offset - offset % mmap.PAGESIZE
        self.mapping.madvise(mmap.MADV_DONTNEED, start, offset + tensor.data.nbytes - start)

    def _find_data_start(self) -> int:
        self._alignment = self.integer("general.alignment", DEFAULT_ALIGNMENT)
        if self._alignment < 8 or self._alignment.bit_count() != 1:
            raise CheckpointError(f"{self.path}: alignment {self._alignment} is not a power of two of at least 8")
        return -(-self.header.size_bytes // self._alignment) * self._alignment

    def _place(self, description: TensorDescription) -> GgufTensor:
        tensor_type = self._type_of(description)
        size_bytes = self._size_of(description, tensor_type)
        if description.offset % self._alignment != 0:
            raise CheckpointError(
                f"{self.path}: tensor {description.name!r} has offset {description.offset}, not a multiple of the "
                f"alignment {self._alignment}; the file is corrupt"
            )
        start = self._data_start + description.offset
        if start + size_bytes > len(self.mapping):
            raise CheckpointError(
                f"{self.path}: tensor {description.name!r} ends at byte {start + size_bytes}, but the file has only "
                f"{len(self.mapping)}; it is truncated, pull it again"
            )
        data = self._bytes[start : start + size_bytes]
        return GgufTensor(description.name, description.shape, tensor_type, data)

    def _type_of(self, description: TensorDescription) -> GgmlType:
        try:
            return GgmlType(description.type_number)
        except ValueError as error:
            raise UnsupportedModelError(
                f"{self.path}: tensor {description.name!r} has the unknown type {description.type_number}; "
                "use another quantization of this model"
            ) from error

    def _size_of(self, description: TensorDescription, tensor_type: GgmlType) -> int:
        num_columns = description.shape[-1]
        num_weights = math.prod(description.shape)
        if num_weights == 0 or num_columns % tensor_type.block_size != 0:
            raise CheckpointError(
                f"{self.path}: tensor {description.name!r} has shape {description.shape}, which {tensor_type.name} "
                f"cannot store (blocks of {tensor_type.block_size}); the file is corrupt"
            )
        return num_weights // tensor_type.block_size * tensor_type.type_size_bytes


def _map_file(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if path.stat().st_size < _SMALLEST_FILE_SIZE_BYTES:
                raise CheckpointError(f"{path}: the file has {path.stat().st_size} bytes, too few for a GGUF header")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"{path}: there is no such file; check the path") from error
    except OSError as error:
        raise CheckpointError(f"{path}: the file cannot be read ({error.strerror}); check its permissions") from error


def _split_paths(path: Path, split_count: int) -> list[Path]:
    """Returns the files of the split model that `path` belongs to, in order; raises CheckpointError."""
    match = _SPLIT_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != split_count:
        raise CheckpointError(
            f"{path}: this is one of {split_count} parts, so its name must end in -00001-of-{split_count:05d}.gguf; "
            "give the parts back their names"
        )
    parts = [path.with_name(f"{match['stem']}-{i:05d}-of-{split_count:05d}.gguf") for i in range(1, split_count + 1)]
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        raise CheckpointError(
            f"{path}: part {missing[0]} of the split model is missing; put all parts in one directory"
        )
    return parts
