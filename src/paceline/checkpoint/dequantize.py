"""`dequantize`: turns a GGUF tensor's weights into float32, in numpy; it defines what each block type means.

The reference model, the loading of vectors, and tests use it; the native core unpacks matrices with its own code. Block
layouts are those of ggml (ggml-common.h). Every float operation is a single float32 multiplication, addition or
subtraction in ggml's order, so results are equal to ggml's bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from paceline.checkpoint.ggml_type import GgmlType
from paceline.checkpoint.gguf import GgufFile, GgufTensor, UInt8Array
from paceline.core.batch import Float32Array
from paceline.core.errors import UnsupportedModelError

_CHUNK_WEIGHTS = 1 << 20
_IQ4_NL_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32)
_NIBBLE_SHIFTS = np.array([0, 4], dtype=np.uint8)
_PAIR_SHIFTS = np.array([0, 2, 4, 6], dtype=np.uint8)
_BIT_SHIFTS = np.arange(8, dtype=np.uint8)


def dequantize(tensor: GgufTensor) -> Float32Array:
    """Returns the weights of `tensor` as float32 in its shape, in new memory.

    Raises UnsupportedModelError for a type that is not implemented.
    """
    decode = _DECODERS.get(tensor.type)
    if decode is None:
        raise UnsupportedModelError(_unsupported(tensor))
    block_size = tensor.type.block_size
    blocks = tensor.data.reshape(-1, tensor.type.type_size_bytes)
    weights = np.empty((len(blocks), block_size), dtype=np.float32)
    chunk = max(1, _CHUNK_WEIGHTS // block_size)
    for start in range(0, len(blocks), chunk):
        weights[start : start + chunk] = decode(blocks[start : start + chunk]).reshape(-1, block_size)
    return weights.reshape(tensor.shape)


def check_weight_types(gguf: GgufFile) -> None:
    """Raises UnsupportedModelError, which names the tensor, for a type that is not implemented; reads no weights."""
    for tensor in gguf.tensors.values():
        if tensor.type not in _DECODERS:
            raise UnsupportedModelError(f"{gguf.paths[0]}: {_unsupported(tensor)}")


def _unsupported(tensor: GgufTensor) -> str:
    return (
        f"tensor {tensor.name!r} has type {tensor.type.name}, which is not implemented; use another quantization "
        f"of this model ({', '.join(known.name for known in _DECODERS)})"
    )


# Every function below takes blocks, uint8 [n, type_size_bytes], and returns float32 with n * block_size elements.


def _decode_f32(blocks: UInt8Array) -> Float32Array:
    return np.ascontiguousarray(blocks).view(np.float32)


def _decode_f16(blocks: UInt8Array) -> Float32Array:
    return _halves(blocks)


def _decode_bf16(blocks: UInt8Array) -> Float32Array:
    pattern = np.zeros((len(blocks), 2), dtype=np.uint16)
    pattern[:, 1:] = np.ascontiguousarray(blocks).view(np.uint16)
    return pattern.view(np.float32)


def _decode_q8_0(blocks: UInt8Array) -> Float32Array:
    scale, quants = _halves(blocks[:, :2]), blocks[:, 2:].view(np.int8)
    return scale * quants.astype(np.float32)


def _decode_q4_0(blocks: UInt8Array) -> Float32Array:
    scale, quants = _halves(blocks[:, :2]), _nibbles(blocks[:, 2:], group=16)
    return scale * (quants.astype(np.float32) - np.float32(8))


def _decode_q4_1(blocks: UInt8Array) -> Float32Array:
    scale, minimum, quants = _halves(blocks[:, :2]), _halves(blocks[:, 2:4]), _nibbles(blocks[:, 4:], group=16)
    return scale * quants.astype(np.float32) + minimum


def _decode_q5_0(blocks: UInt8Array) -> Float32Array:
    scale, quants = _halves(blocks[:, :2]), _five_bits(blocks[:, 2:6], blocks[:, 6:])
    return scale * (quants.astype(np.float32) - np.float32(16))


def _decode_q5_1(blocks: UInt8Array) -> Float32Array:
    scale, minimum = _halves(blocks[:, :2]), _halves(blocks[:, 2:4])
    return scale * _five_bits(blocks[:, 4:8], blocks[:, 8:]).astype(np.float32) + minimum


def _decode_iq4_nl(blocks: UInt8Array) -> Float32Array:
    scale, indices = _halves(blocks[:, :2]), _nibbles(blocks[:, 2:], group=16)
    return scale * _IQ4_NL_VALUES[indices]


def _decode_q2_k(blocks: UInt8Array) -> Float32Array:
    scales, quants = blocks[:, :16, None], _pairs(blocks[:, 16:80], group=32).reshape(-1, 16, 16)
    scale = _halves(blocks[:, 80:82])[:, None] * (scales & 0x0F).astype(np.float32)
    minimum = _halves(blocks[:, 82:84])[:, None] * (scales >> 4).astype(np.float32)
    return scale * quants.astype(np.float32) - minimum


def _decode_q3_k(blocks: UInt8Array) -> Float32Array:
    high = _bits(blocks[:, :32], group=32)
    quants: UInt8Array = _pairs(blocks[:, 32:96], group=32) | _raised(high, 2)
    scales: UInt8Array = _nibbles(blocks[:, 96:104], group=8) | _raised(_pairs(blocks[:, 104:108], group=4), 4)
    scale: Float32Array = _halves(blocks[:, 108:110])[:, None] * (
        scales[:, :, None].astype(np.float32) - np.float32(32)
    )
    return scale * (quants.reshape(-1, 16, 16).astype(np.float32) - np.float32(4))


def _decode_q4_k(blocks: UInt8Array) -> Float32Array:
    scale, minimum = _scales_and_minima(blocks)
    quants = _nibbles(blocks[:, 16:], group=32).reshape(-1, 8, 32)
    return scale * quants.astype(np.float32) - minimum


def _decode_q5_k(blocks: UInt8Array) -> Float32Array:
    scale, minimum = _scales_and_minima(blocks)
    quants = _nibbles(blocks[:, 48:], group=32) | _raised(_bits(blocks[:, 16:48], group=32), 4)
    return scale * quants.reshape(-1, 8, 32).astype(np.float32) - minimum


def _decode_q6_k(blocks: UInt8Array) -> Float32Array:
    quants = _nibbles(blocks[:, :128], group=64) | _raised(_pairs(blocks[:, 128:192], group=32), 4)
    scales = blocks[:, 192:208].view(np.int8)[:, :, None].astype(np.float32)
    scale = _halves(blocks[:, 208:210])[:, None] * scales
    return scale * (quants.reshape(-1, 16, 16).astype(np.float32) - np.float32(32))


def _halves(blocks: UInt8Array) -> Float32Array:
    halves: npt.NDArray[np.float16] = np.ascontiguousarray(blocks).view(np.float16)
    return halves.astype(np.float32)


def _nibbles(packed: UInt8Array, group: int) -> UInt8Array:
    """Unpacks [n, b] to [n, 2 b]: from each `group` bytes first all low halves, then all high halves."""
    return _unpack(packed, group, _NIBBLE_SHIFTS, mask=0x0F)


def _pairs(packed: UInt8Array, group: int) -> UInt8Array:
    """Unpacks [n, b] to [n, 4 b]: from each `group` bytes first all lowest two bits, then the next two, and so on."""
    return _unpack(packed, group, _PAIR_SHIFTS, mask=0x03)


def _bits(packed: UInt8Array, group: int) -> UInt8Array:
    """Unpacks [n, b] to [n, 8 b]: from each `group` bytes first all lowest bits, then the next, and so on."""
    return _unpack(packed, group, _BIT_SHIFTS, mask=0x01)


def _unpack(packed: UInt8Array, group: int, shifts: UInt8Array, mask: int) -> UInt8Array:
    grouped = packed.reshape(len(packed), -1, 1, group)
    unpacked: UInt8Array = np.right_shift(grouped, shifts[:, None], dtype=np.uint8)
    return (unpacked & np.uint8(mask)).reshape(len(packed), -1)


def _raised(quants: UInt8Array, num_bits: int) -> UInt8Array:
    """Returns the quants shifted left by `num_bits`, to be combined with their lower bits."""
    return np.left_shift(quants, np.uint8(num_bits), dtype=np.uint8)


def _five_bits(high: UInt8Array, low: UInt8Array) -> UInt8Array:
    """Returns the quants of Q5_0 and Q5_1, [n, 32]: bit i of the four `high` bytes is the fifth bit of weight i."""
    return _nibbles(low, group=16) | _raised(_bits(high, group=1), 4)


def _scales_and_minima(blocks: UInt8Array) -> tuple[Float32Array, Float32Array]:
    """Returns the scales and minima of Q4_K and Q5_K blocks, [n, 8, 1] each. They are 6-bit numbers. The first four are
    the low bits of a byte each; the other two bits of these bytes are the top bits of the last four numbers."""
    packed = blocks[:, 4:16]
    first, second, low = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 0x3F, (low & 0x0F) | ((first >> 6) << 4)], axis=1)
    minima = np.concatenate([second & 0x3F, (low >> 4) | ((second >> 6) << 4)], axis=1)
    scale = _halves(blocks[:, :2]) * scales.astype(np.float32)
    minimum = _halves(blocks[:, 2:4]) * minima.astype(np.float32)
    return scale[:, :, None], minimum[:, :, None]


_DECODERS: Mapping[GgmlType, Callable[[UInt8Array], Float32Array]] = MappingProxyType(
    {
        GgmlType.F32: _decode_f32,
        GgmlType.F16: _decode_f16,
        GgmlType.BF16: _decode_bf16,
        GgmlType.Q8_0: _decode_q8_0,
        GgmlType.Q4_0: _decode_q4_0,
        GgmlType.Q4_1: _decode_q4_1,
        GgmlType.Q5_0: _decode_q5_0,
        GgmlType.Q5_1: _decode_q5_1,
        GgmlType.Q2_K: _decode_q2_k,
        GgmlType.Q3_K: _decode_q3_k,
        GgmlType.Q4_K: _decode_q4_k,
        GgmlType.Q5_K: _decode_q5_k,
        GgmlType.Q6_K: _decode_q6_k,
        GgmlType.IQ4_NL: _decode_iq4_nl,
    }
)
