"""Makes random weight matrices in every GGUF type, with a wanted standard deviation and a mean near zero.

The `gguf` package quantizes Gaussian values to float and legacy types. It cannot quantize to the K-quants and IQ4_NL,
so these are random blocks: all integer fields are random, and the scales give the values the wanted size.
"""

from __future__ import annotations

from collections.abc import Callable

import gguf
import numpy as np
import numpy.typing as npt
from gguf import quants

Float32Array = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]

WEIGHT_TYPES = (
    *("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"),
)


def random_matrix(
    rng: np.random.Generator, weight_type: str, num_columns: int, row_deviations: Float32Array
) -> npt.NDArray[np.generic]:
    """Returns a matrix [len(row_deviations), num_columns] whose row i has the standard deviation `row_deviations[i]`.

    For F32 and F16 it has float32 or float16 values, for all other types the bytes of the quantized rows, uint8 [rows,
    bytes of a row]. Raises ValueError if `num_columns` is not a multiple of the type's block size.
    """
    type_id = gguf.GGMLQuantizationType[weight_type]
    block_size, _ = gguf.GGML_QUANT_SIZES[type_id]
    if num_columns % block_size:
        raise ValueError(f"{num_columns} columns are no multiple of {weight_type}'s block size {block_size}")
    if weight_type in _BLOCK_MAKERS:
        return _random_blocks(rng, type_id, num_columns // block_size, row_deviations)
    values = rng.standard_normal((len(row_deviations), num_columns), dtype=np.float32) * row_deviations[:, None]
    if weight_type in ("F32", "F16"):
        return values.astype(np.float32 if weight_type == "F32" else np.float16)
    return quants.quantize(values, type_id)


def _random_blocks(
    rng: np.random.Generator, type_id: gguf.GGMLQuantizationType, blocks_per_row: int, row_deviations: Float32Array
) -> ByteArray:
    make = _BLOCK_MAKERS[type_id.name]
    num_blocks = len(row_deviations) * blocks_per_row
    fields_seed = rng.integers(2**63)
    unit = make(np.random.default_rng(fields_seed), np.ones(num_blocks, np.float32))
    unit_deviation = quants.dequantize(unit, type_id).std()
    spread = np.repeat(row_deviations, blocks_per_row) * rng.uniform(0.8, 1.2, num_blocks).astype(np.float32)
    blocks = make(np.random.default_rng(fields_seed), spread / unit_deviation)
    return blocks.reshape(len(row_deviations), -1)


def _random_bytes(rng: np.random.Generator, num_blocks: int, size: int) -> ByteArray:
    return rng.integers(0, 256, (num_blocks, size), dtype=np.uint8)


def _half_bytes(values: Float32Array) -> ByteArray:
    return values.astype(np.float16)[:, None].view(np.uint8)


def _minima_near(rng: np.random.Generator, scales: ByteArray, limit: int) -> ByteArray:
    """Returns integer minima that differ from the scales by at most 1, so that a block's mean is near zero although its
    minima are not just its scales."""
    jitter = rng.integers(-1, 2, scales.shape)
    return np.clip(scales.astype(np.int64) + jitter, 0, limit).astype(np.uint8)


def _pack_six_bit(scales: ByteArray, minima: ByteArray) -> ByteArray:
    """Returns eight 6-bit scales and minima packed in 12 bytes, as in Q4_K and Q5_K."""
    low = scales[:, :4] | ((scales[:, 4:] >> 4) << 6)
    middle = minima[:, :4] | ((minima[:, 4:] >> 4) << 6)
    high = (scales[:, 4:] & 15) | ((minima[:, 4:] & 15) << 4)
    return np.concatenate([low, middle, high], axis=1)


def _q2_k(rng: np.random.Generator, scale: Float32Array) -> ByteArray:
    scales = rng.integers(1, 16, (len(scale), 16), dtype=np.uint8)
    packed = scales | (_minima_near(rng, scales, 15) << 4)
    values = _random_bytes(rng, len(scale), 64)
    return np.concatenate([packed, values, _half_bytes(scale), _half_bytes(scale * np.float32(1.5))], axis=1)


def _q3_k(rng: np.random.Generator, scale: Float32Array) -> ByteArray:
    fields = _random_bytes(rng, len(scale), 32 + 64 + 12)
    return np.concatenate([fields, _half_bytes(scale)], axis=1)


def _q4_k(rng: np.random.Generator, scale: Float32Array) -> ByteArray:
    return _centred_six_bit(rng, scale, middle_value=7.5, num_value_bytes=128)


def _q5_k(rng: np.random.Generator, scale: Float32Array) -> ByteArray:
    return _centred_six_bit(rng, scale, middle_value=15.5, num_value_bytes=32 + 128)


def _centred_six_bit(
    rng: np.random.Generator, scale: Float32Array, middle_value: float, num_value_bytes: int
) -> ByteArray:
    scales = rng.integers(16, 64, (len(scale), 8), dtype=np.uint8)
    packed = _pack_six_bit(scales, _minima_near(rng, scales, 63))
    minimum_scale = scale * np.float32(middle_value)
    values = _random_bytes(rng, len(scale), num_value_bytes)
    return np.concatenate([_half_bytes(scale), _half_bytes(minimum_scale), packed, values], axis=1)


def _q6_k(rng: np.random.Generator, scale: Float32Array) -> ByteArray:
    values = _random_bytes(rng, len(scale), 128 + 64)
    scales = rng.integers(-128, 128, (len(scale), 16)).astype(np.int8).view(np.uint8)
    return np.concatenate([values, scales, _half_bytes(scale)], axis=1)


def _iq4_nl(rng: np.random.Generator, scale: Float32Array) -> ByteArray:
    signs = rng.choice(np.array([-1, 1], np.float32), len(scale))
    return np.concatenate([_half_bytes(scale * signs), _random_bytes(rng, len(scale), 16)], axis=1)


_BLOCK_MAKERS: dict[str, Callable[[np.random.Generator, Float32Array], ByteArray]] = {
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
}
