"""Copies GGUF files with every tensor dequantized to F32: the same model without any quantized arithmetic.

Engines round activations only before quantized weights. On such a copy they do not, so their distributions are exact to
float precision and can be compared closely.
"""

from __future__ import annotations

import struct
from pathlib import Path

from paceline.checkpoint import GgmlType, GgufFile, dequantize

_ALIGNMENT = 32


def write_float_copy(source: Path, destination: Path) -> Path:
    """Writes `destination` with the metadata of `source` and all its weights as float32; returns `destination`."""
    with GgufFile.open(source) as gguf, destination.open("wb") as file:
        file.write(_header_before_tensors(source, next(iter(gguf.tensors))))
        offset = 0
        for tensor in gguf.tensors.values():
            name = tensor.name.encode()
            dimensions = tensor.shape[::-1]
            file.write(struct.pack(f"<Q{len(name)}sI{len(dimensions)}Q", len(name), name, len(dimensions), *dimensions))
            file.write(struct.pack("<IQ", GgmlType.F32, offset))
            offset += _padded(4 * tensor.data.size // tensor.type.type_size_bytes * tensor.type.block_size)
        file.write(bytes(_padded(file.tell()) - file.tell()))
        for tensor in gguf.tensors.values():
            weights = dequantize(tensor).tobytes()
            file.write(weights + bytes(_padded(len(weights)) - len(weights)))
    return destination


def _header_before_tensors(source: Path, first_tensor_name: str) -> bytes:
    """Returns the beginning of the file: magic, counts and metadata, which are the same in the copy."""
    name = first_tensor_name.encode()
    content = source.read_bytes()
    return content[: content.index(struct.pack("<Q", len(name)) + name)]


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
