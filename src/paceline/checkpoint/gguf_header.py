"""`HeaderReader`: decodes the header of a GGUF file (metadata and tensor descriptions), checking every bound.

It reads any buffer and trusts no number in it: a count is compared with the bytes left before anything is allocated.
`gguf` places tensors and owns the mapping. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import NoReturn

import numpy as np

from paceline.core.errors import CheckpointError, UnsupportedModelError

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)
MAX_DIMENSIONS = 4
MAX_ARRAY_DEPTH = 4
MAX_NAME_SIZE_BYTES = 65535

_STRING, _ARRAY = 8, 9
_LENGTH_SIZE_BYTES = 8
_SMALLEST_ENTRY_SIZE_BYTES = _LENGTH_SIZE_BYTES + 4 + 1
_SMALLEST_TENSOR_SIZE_BYTES = _LENGTH_SIZE_BYTES + 4 + 8 + 4 + 8

_UINT32 = struct.Struct("<I")
_UINT64 = struct.Struct("<Q")
_SCALARS = MappingProxyType(
    {
        0: struct.Struct("<B"),
        1: struct.Struct("<b"),
        2: struct.Struct("<H"),
        3: struct.Struct("<h"),
        4: _UINT32,
        5: struct.Struct("<i"),
        6: struct.Struct("<f"),
        7: struct.Struct("<?"),
        10: _UINT64,
        11: struct.Struct("<q"),
        12: struct.Struct("<d"),
    }
)


@dataclass(frozen=True, slots=True)
class TensorDescription:
    """One tensor as the header declares it: `shape` in numpy order, `offset` from the start of the data section."""

    name: str
    shape: tuple[int, ...]
    type_number: int
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """Everything before a GGUF file's tensor data; `size_bytes` does not include the padding that aligns the data."""

    version: int
    metadata: dict[str, object]
    tensors: tuple[TensorDescription, ...]
    size_bytes: int


class HeaderReader:
    """A cursor over `buffer` of `size_bytes`; `source` names the file in errors."""

    def __init__(self, buffer: mmap.mmap | bytes, size_bytes: int, source: str) -> None:
        self._buffer = buffer
        self._size_bytes = size_bytes
        self._source = source
        self._offset = 0

    def read(self) -> Header:
        """Returns the whole header; raises CheckpointError or UnsupportedModelError."""
        version = self._read_version()
        num_tensors = self._number(_UINT64)
        num_entries = self._number(_UINT64)
        self._require(num_entries * _SMALLEST_ENTRY_SIZE_BYTES, f"{num_entries} metadata entries")
        metadata: dict[str, object] = {}
        for _ in range(num_entries):
            key = self._name("a metadata key")
            if key in metadata:
                self._fail(f"metadata key {key!r} appears twice")
            metadata[key] = self._value(self._number(_UINT32), key, depth=0)
        self._require(num_tensors * _SMALLEST_TENSOR_SIZE_BYTES, f"{num_tensors} tensors")
        tensors = tuple(self._tensor() for _ in range(num_tensors))
        return Header(version, metadata, tensors, self._offset)

    def _read_version(self) -> int:
        magic = self._buffer[: len(MAGIC)]
        if magic != MAGIC:
            self._fail(f"the file begins with {magic!r} instead of {MAGIC!r}, so it is not a GGUF file")
        self._offset = len(MAGIC)
        version = self._number(_UINT32)
        if version in SUPPORTED_VERSIONS:
            return version
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        found = f"big-endian version {swapped}" if swapped in SUPPORTED_VERSIONS else f"version {version}"
        raise UnsupportedModelError(
            f"{self._source}: GGUF {found} is not supported; convert the file to little-endian version 3"
        )

    def _tensor(self) -> TensorDescription:
        name = self._name("a tensor name")
        num_dimensions = self._number(_UINT32)
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            self._fail(f"tensor {name!r} has {num_dimensions} dimensions; 1 to {MAX_DIMENSIONS} are possible")
        sizes = [self._number(_UINT64) for _ in range(num_dimensions)]
        type_number = self._number(_UINT32)
        return TensorDescription(name, tuple(reversed(sizes)), type_number, self._number(_UINT64))

    def _value(self, type_number: int, key: str, depth: int) -> object:
        scalar = _SCALARS.get(type_number)
        if scalar is not None:
            return self._number(scalar)
        if type_number == _STRING:
            return self._string(f"the value of {key!r}")
        if type_number == _ARRAY:
            return self._array(key, depth)
        return self._fail(f"metadata key {key!r} has the unknown value type {type_number}")

    def _array(self, key: str, depth: int) -> object:
        if depth >= MAX_ARRAY_DEPTH:
            self._fail(f"metadata key {key!r} nests arrays deeper than {MAX_ARRAY_DEPTH}")
        item_type = self._number(_UINT32)
        count = self._number(_UINT64)
        scalar = _SCALARS.get(item_type)
        if scalar is not None:
            return self._number_array(scalar, count, key)
        if item_type == _STRING:
            return self._string_array(count, key)
        self._require(count * (4 + _LENGTH_SIZE_BYTES), f"{count} arrays of {key!r}")
        return [self._value(item_type, key, depth + 1) for _ in range(count)]

    def _number_array(self, scalar: struct.Struct, count: int, key: str) -> object:
        size_bytes = count * scalar.size
        self._require(size_bytes, f"{count} numbers of {key!r}")
        start = self._offset
        self._offset += size_bytes
        if scalar.format == "<?":
            return np.frombuffer(self._buffer[start : self._offset], np.uint8) != 0
        return np.frombuffer(self._buffer[start : self._offset], scalar.format)

    def _string_array(self, count: int, key: str) -> list[str]:
        self._require(count * _LENGTH_SIZE_BYTES, f"{count} strings of {key!r}")
        buffer, end, offset = self._buffer, self._size_bytes, self._offset
        read_length: Callable[[mmap.mmap | bytes, int], tuple[int]] = _UINT64.unpack_from
        strings: list[str] = []
        try:
            for _ in range(count):
                start = offset + _LENGTH_SIZE_BYTES
                offset = start + read_length(buffer, offset)[0]
                if offset > end:
                    self._fail(f"a string of {key!r} at byte {start} reaches beyond the end of the file")
                strings.append(buffer[start:offset].decode())
        except UnicodeDecodeError as error:
            self._fail(f"a string of {key!r} at byte {start} is not UTF-8", error)
        except struct.error as error:
            self._fail(f"the strings of {key!r} reach beyond the end of the file", error)
        self._offset = offset
        return strings

    def _name(self, what: str) -> str:
        name = self._string(what, MAX_NAME_SIZE_BYTES)
        if not name:
            self._fail(f"{what} before byte {self._offset} is empty")
        return name

    def _string(self, what: str, max_size_bytes: int | None = None) -> str:
        length = self._number(_UINT64)
        if max_size_bytes is not None and length > max_size_bytes:
            self._fail(f"{what} has {length} bytes; {max_size_bytes} is the most that is possible")
        self._require(length, f"{what} of {length} bytes")
        start = self._offset
        self._offset += length
        try:
            return self._buffer[start : self._offset].decode()
        except UnicodeDecodeError as error:
            return self._fail(f"{what} at byte {start} is not UTF-8", error)

    def _number(self, scalar: struct.Struct) -> int:
        self._require(scalar.size, "a number")
        value: int = scalar.unpack_from(self._buffer, self._offset)[0]
        self._offset += scalar.size
        return value

    def _require(self, size_bytes: int, what: str) -> None:
        if self._offset + size_bytes > self._size_bytes:
            self._fail(f"{what} at byte {self._offset} would end after the file, which has {self._size_bytes} bytes")

    def _fail(self, problem: str, cause: Exception | None = None) -> NoReturn:
        raise CheckpointError(f"{self._source}: {problem}; the file is truncated or corrupt, pull it again") from cause
