"""`Tensor`: an input or output of the protocol, and its two forms on the wire: JSON, and bytes after the JSON."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from paceline.core.errors import InvalidRequestError

_LENGTH = struct.Struct("<I")
_DTYPES = MappingProxyType(
    {
        "BOOL": np.dtype("?"),
        **{f"UINT{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
        **{f"INT{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
        **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    }
)
BYTES = "BYTES"
MAX_DIMENSIONS = 8
Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named tensor. `values` has all elements in row-major order; texts are the elements of the type BYTES."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: tuple[Value, ...]

    @classmethod
    def from_json(cls, name: str, datatype: str, shape: Sequence[int], data: Any) -> Tensor:  # noqa: ANN401
        """Returns a tensor of nested or flat lists; raises InvalidRequestError."""
        return _checked(cls(name, datatype, tuple(shape), tuple(_flat(data))))

    @classmethod
    def from_bytes(cls, name: str, datatype: str, shape: Sequence[int], data: bytes | memoryview) -> Tensor:
        """Returns a tensor of little-endian numbers, or of texts with their lengths before them; raises
        InvalidRequestError."""
        if datatype == BYTES:
            return _checked(cls(name, datatype, tuple(shape), tuple(_texts(name, bytes(data)))))
        if datatype not in _DTYPES or len(data) % _DTYPES[datatype].itemsize:
            raise _refusal(name, f"{len(data)} bytes are not data of the type {datatype}")
        return _checked(cls(name, datatype, tuple(shape), tuple(np.frombuffer(data, _DTYPES[datatype]).tolist())))

    def to_bytes(self) -> bytes:
        """Returns the elements as bytes."""
        if self.datatype != BYTES:
            return np.array(self.values, _DTYPES[self.datatype]).tobytes()
        texts = (str(value).encode() for value in self.values)
        return b"".join(_LENGTH.pack(len(text)) + text for text in texts)


def text_tensor(name: str, text: str) -> Tensor:
    """Returns a tensor of one text."""
    return Tensor(name, BYTES, (1,), (text,))


def count_tensor(name: str, count: int) -> Tensor:
    """Returns a tensor of one number."""
    return Tensor(name, "UINT32", (1,), (count,))


def _texts(name: str, data: bytes) -> Iterator[str]:
    start = 0
    while start < len(data):
        if start + _LENGTH.size > len(data):
            raise _refusal(name, "its data ends within the length of an element")
        (length,) = _LENGTH.unpack_from(data, start)
        start += _LENGTH.size
        if start + length > len(data):
            raise _refusal(name, "its data ends within an element")
        try:
            yield data[start : start + length].decode()
        except UnicodeDecodeError:
            raise _refusal(name, "an element is not text in UTF-8") from None
        start += length


def _flat(data: Any) -> Iterator[Any]:  # noqa: ANN401 - a JSON value
    """Yields the elements of nested lists. It uses no recursion, because a client chooses the depth."""
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += reversed(value)
        else:
            yield value


def _checked(tensor: Tensor) -> Tensor:
    """Returns the tensor; raises InvalidRequestError if its elements do not fit its type and its shape."""
    name, datatype = tensor.name, tensor.datatype
    if datatype != BYTES and datatype not in _DTYPES:
        raise _refusal(name, f"the type {datatype!r} is not known")
    if len(tensor.shape) > MAX_DIMENSIONS:
        raise _refusal(name, f"it has more than {MAX_DIMENSIONS} dimensions")
    if any(size < 0 for size in tensor.shape) or math.prod(tensor.shape) != len(tensor.values):
        raise _refusal(name, f"{len(tensor.values)} elements do not fill the shape {list(tensor.shape)}")
    kinds = _kinds(datatype)
    if not all(type(value) in kinds for value in tensor.values):
        raise _refusal(name, f"an element is not of the type {datatype}")
    return tensor


def _kinds(datatype: str) -> tuple[type, ...]:
    if datatype == BYTES:
        return (str,)
    if datatype == "BOOL":
        return (bool,)
    return (int, float) if datatype.startswith("FP") else (int,)


def _refusal(name: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"the tensor {name!r} cannot be read: {reason}", name, "invalid_value")
