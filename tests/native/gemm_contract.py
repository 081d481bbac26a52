"""The arithmetic of native/quant/layouts.hpp in plain numpy: what every kernel must give bit for bit.

Decodes file blocks itself (by the GGUF block formats), for one type of each kind: minima as integers (Q4_K), minima as
halves (Q5_1), scales of 16 inputs (Q6_K).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.native.gguf_blocks import RawTensor

Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DecodedWeights:
    """Integers [outputs, groups, inputs of a group]; scales and minima by group, `minimum_scales` by super-block."""

    integers: IntArray
    scales: Float32Array
    half_minima: Float32Array | None = None
    integer_minima: IntArray | None = None
    minimum_scales: Float32Array | None = None


def fma(a: Float32Array, b: Float32Array, c: Float32Array) -> Float32Array:
    """a * b + c rounded once: the product is exact in the wide type, which has 40 bits more than float32."""
    wide = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
    return wide.astype(np.float32)


def scale_inputs(weight_type: str) -> int:
    """How many inputs share an activation scale."""
    return 256 if weight_type.endswith("_K") else 32


def round_activations(rows: Float32Array, run: int) -> tuple[npt.NDArray[np.int8], Float32Array]:
    """int8 [rows, inputs] and float32 scales [rows, runs] of the rounding rule."""
    values = np.zeros(rows.shape, np.int8)
    scales = np.zeros((len(rows), -(-rows.shape[1] // run)), np.float32)
    for block in range(scales.shape[1]):
        part = rows[:, run * block : run * (block + 1)]
        largest = np.abs(part).max(axis=1)
        with np.errstate(divide="ignore", over="ignore"):
            inverse = np.float32(127) / largest
        usable = np.isfinite(inverse)
        factors = np.where(usable, inverse, np.float32(0))[:, None]
        scales[:, block] = np.where(usable, largest / np.float32(127), 0)
        values[:, run * block : run * (block + 1)] = np.rint(part * factors).astype(np.int8)
    return values, scales


def contract_gemm(weights: DecodedWeights, values: npt.NDArray[np.int8], scales: Float32Array) -> Float32Array:
    """float32 [rows, outputs] in the fixed order of operations."""
    outputs, num_groups, group_inputs = weights.integers.shape
    groups = values.astype(np.int64).reshape(len(values), num_groups, group_inputs)
    dots = np.einsum("ogk,rgk->rog", weights.integers, groups)
    sums = groups.sum(axis=2)
    total = np.zeros((len(values), outputs), np.float32)
    if weights.integer_minima is None and group_inputs == 32:
        return _group_scaled(weights, dots, sums, scales, total)
    per_block = 256 // group_inputs
    for block in range(scales.shape[1]):
        span = range(block * per_block, min((block + 1) * per_block, num_groups))
        partial = _partial(weights, dots, span)
        if weights.integer_minima is not None and weights.minimum_scales is not None:
            minima = np.einsum("og,rg->ro", weights.integer_minima[:, span], sums[:, span])
            partial = fma(minima.astype(np.float32), -weights.minimum_scales[None, :, block], partial)
        total = fma(partial, scales[:, block, None], total)
    return total


def _partial(weights: DecodedWeights, dots: IntArray, span: range) -> Float32Array:
    partial = np.zeros(dots.shape[:2], np.float32)
    for group in span:
        partial = fma(dots[:, :, group].astype(np.float32), weights.scales[None, :, group], partial)
    return partial


def _group_scaled(
    weights: DecodedWeights, dots: IntArray, sums: IntArray, scales: Float32Array, total: Float32Array
) -> Float32Array:
    for group in range(dots.shape[2]):
        scaled = dots[:, :, group].astype(np.float32) * weights.scales[None, :, group]
        total = fma(scaled, scales[:, group, None], total)
        if weights.half_minima is not None:
            group_sums = sums[:, None, group].astype(np.float32) * scales[:, group, None]
            total = fma(group_sums, weights.half_minima[None, :, group], total)
    return total


def decode(tensor: RawTensor) -> DecodedWeights:
    """The integers and scales of a Q4_K, Q5_1 or Q6_K tensor."""
    return {"Q4_K": _decode_q4_k, "Q5_1": _decode_q5_1, "Q6_K": _decode_q6_k}[tensor.weight_type](tensor.blocks)


def _half(blocks: npt.NDArray[np.uint8], offset: int) -> Float32Array:
    return np.ascontiguousarray(blocks[..., offset : offset + 2]).view(np.float16)[..., 0].astype(np.float32)


def _decode_q5_1(blocks: npt.NDArray[np.uint8]) -> DecodedWeights:
    nibbles = np.concatenate([blocks[..., 8:24] & 15, blocks[..., 8:24] >> 4], axis=-1)
    fifth = np.unpackbits(blocks[..., 4:8], axis=-1, bitorder="little")
    integers = (nibbles | fifth << 4).astype(np.int64)
    return DecodedWeights(integers, _half(blocks, 0), half_minima=_half(blocks, 2))


def _decode_q4_k(blocks: npt.NDArray[np.uint8]) -> DecodedWeights:
    outputs, num_blocks, _ = blocks.shape
    low, middle, high = (blocks[..., start : start + 4] for start in (4, 8, 12))
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=-1)
    minima = np.concatenate([middle & 63, high >> 4 | (middle >> 6) << 4], axis=-1)
    pairs = blocks[..., 16:].reshape(outputs, num_blocks, 4, 1, 32)
    integers = np.concatenate([pairs & 15, pairs >> 4], axis=3).reshape(outputs, -1, 32)
    return DecodedWeights(
        integers.astype(np.int64),
        (_half(blocks, 0)[..., None] * scales.astype(np.float32)).reshape(outputs, -1),
        integer_minima=minima.reshape(outputs, -1).astype(np.int64),
        minimum_scales=_half(blocks, 2),
    )


def _decode_q6_k(blocks: npt.NDArray[np.uint8]) -> DecodedWeights:
    outputs, num_blocks, _ = blocks.shape
    low = blocks[..., :128].reshape(outputs, num_blocks, 2, 64)
    upper = blocks[..., 128:192].reshape(outputs, num_blocks, 2, 1, 32)
    nibbles = np.concatenate([low & 15, low >> 4], axis=-1).reshape(outputs, num_blocks, 2, 4, 32)
    bits = upper >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    integers = (nibbles | bits << 4).astype(np.int64).reshape(outputs, -1, 16) - 32
    scales = blocks[..., 192:208].view(np.int8).astype(np.float32)
    return DecodedWeights(integers, (_half(blocks, 208)[..., None] * scales).reshape(outputs, -1))
