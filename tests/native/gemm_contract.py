"""The arithmetic of native/quant/layouts.hpp in plain numpy. Every kernel must give its results bit for bit.

It decodes the blocks of files itself, by the GGUF formats, for one type of each kind: with integer minima (Q4_K), with
half-float minima (Q5_1), and with a scale for each 16 inputs (Q6_K).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline import _native
from tests.native.gguf_blocks import RawTensor

Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DecodedWeights:
    """Decoded weights: `integers` [outputs, groups, inputs of a group] with their scales and minima.

    Either `scales` and `half_minima` are floats for each group, or `block_scales` and `minimum_scales` are floats for
    each super-block and multiply the integers `integer_scales` and `integer_minima` of each group.
    """

    integers: IntArray
    scales: Float32Array | None = None
    half_minima: Float32Array | None = None
    integer_scales: IntArray | None = None
    integer_minima: IntArray | None = None
    block_scales: Float32Array | None = None
    minimum_scales: Float32Array | None = None


@dataclass(frozen=True)
class RoundedActivations:
    """Rounded activations: `integers` [rows, inputs] and float32 `scales` [rows, super-blocks].

    An integer is 128 * high + low.
    """

    integers: IntArray
    scales: Float32Array

    @property
    def high(self) -> IntArray:
        """The upper plane, with values from -127 to 127."""
        return np.where(np.abs(self.integers) > 127, (self.integers + 64) >> 7, 0)

    @property
    def low(self) -> IntArray:
        """The lower plane. It is the whole integer up to a magnitude of 127, and beyond that from -64 to 63."""
        return self.integers - 128 * self.high


def fma(a: Float32Array, b: Float32Array, c: Float32Array) -> Float32Array:
    """Returns a * b + c, rounded once. The product is exact in the wide type, which has 40 bits more than float32."""
    wide = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
    return wide.astype(np.float32)


def _mean_magnitude(part: Float32Array) -> Float32Array:
    """Returns the mean magnitude. Each of 16 lanes adds every 16th value, then the lanes are added in halves."""
    lanes = np.zeros((len(part), 16), np.float32)
    for start in range(0, part.shape[1], 16):
        lanes = np.abs(part[:, start : start + 16]) + lanes
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    mean: Float32Array = lanes[:, 0] / np.float32(part.shape[1])
    return mean


OUTLIER_RATIOS = {
    _native.ActivationRounding.EIGHT_BITS: 32,
    _native.ActivationRounding.EIGHT_BITS_OF_NORMED: 12,
}


def round_activations(rows: Float32Array, rounding: _native.ActivationRounding) -> RoundedActivations:
    """Rounds activations by the written rule, with one scale for 256 inputs."""
    num_blocks = -(-rows.shape[1] // 256)
    integers = np.zeros(rows.shape, np.int64)
    scales = np.zeros((len(rows), num_blocks), np.float32)
    for block in range(num_blocks):
        part = rows[:, 256 * block : 256 * (block + 1)]
        is_finite = np.isfinite(part).all(axis=1)
        part = np.where(is_finite[:, None], part, np.float32(0))
        usual, limit = np.abs(part).max(axis=1), np.float32(16256)
        with np.errstate(divide="ignore", over="ignore"):
            if rounding in OUTLIER_RATIOS:
                bound, limit = np.float32(OUTLIER_RATIOS[rounding]) * _mean_magnitude(part), np.float32(127)
                usual = np.minimum(usual, bound)
            inverse = limit / usual
        usable = np.isfinite(inverse)
        factors = np.where(usable, inverse, np.float32(0))[:, None]
        scales[:, block] = np.where(is_finite, np.where(usable, usual / limit, 0), np.nan)
        integers[:, 256 * block : 256 * (block + 1)] = np.rint(part * factors).astype(np.int64)
    return RoundedActivations(integers, scales)


def contract_gemm(weights: DecodedWeights, activations: RoundedActivations) -> Float32Array:
    """Returns the product, float32 [rows, outputs], computed in the fixed order of operations."""
    outputs, num_groups, group_inputs = weights.integers.shape
    total = np.zeros((len(activations.integers), outputs), np.float32)
    per_block = 256 // group_inputs
    for block in range(activations.scales.shape[1]):
        span = range(block * per_block, min((block + 1) * per_block, num_groups))
        if weights.integer_scales is None:
            partial = _ragged_block(weights, activations, span)
        else:
            partial = _whole_block(weights, activations, block, span)
        total = fma(partial, activations.scales[:, block, None], total)
    return total


def _dots(weights: DecodedWeights, values: IntArray) -> IntArray:
    """Returns the exact dot products [rows, outputs, groups]."""
    groups = values.reshape(len(values), *weights.integers.shape[1:])
    return np.einsum("ogk,rgk->rog", weights.integers, groups)


def _group_sums(weights: DecodedWeights, values: IntArray) -> IntArray:
    return values.reshape(len(values), *weights.integers.shape[1:]).sum(axis=2)


def _whole_block(weights: DecodedWeights, activations: RoundedActivations, block: int, span: range) -> Float32Array:
    assert weights.integer_scales is not None
    assert weights.block_scales is not None
    scales = weights.integer_scales[None][:, :, span]
    high = (_dots(weights, activations.high)[:, :, span] * scales).sum(axis=2).astype(np.float32)
    low = (_dots(weights, activations.low)[:, :, span] * scales).sum(axis=2).astype(np.float32)
    partial = fma(high, np.full_like(high, 128), low) * weights.block_scales[None, :, block]
    if weights.integer_minima is not None and weights.minimum_scales is not None:
        sums = _group_sums(weights, activations.integers)[:, span]
        minima = np.einsum("og,rg->ro", weights.integer_minima[:, span], sums)
        partial = fma(minima.astype(np.float32), -weights.minimum_scales[None, :, block], partial)
    return partial


def _ragged_block(weights: DecodedWeights, activations: RoundedActivations, span: range) -> Float32Array:
    assert weights.scales is not None
    dots = _dots(weights, activations.integers)
    sums = _group_sums(weights, activations.integers).astype(np.float32)
    partial = np.zeros(dots.shape[:2], np.float32)
    for group in span:
        partial = fma(dots[:, :, group].astype(np.float32), weights.scales[None, :, group], partial)
        if weights.half_minima is not None:
            partial = fma(sums[:, None, group], weights.half_minima[None, :, group], partial)
    return partial


def decode(tensor: RawTensor) -> DecodedWeights:
    """Returns the integers, scales and minima of a Q4_K, Q5_1 or Q6_K tensor."""
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
        integer_scales=scales.reshape(outputs, -1).astype(np.int64),
        block_scales=_half(blocks, 0),
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
    scales = blocks[..., 192:208].view(np.int8).astype(np.int64).reshape(outputs, -1)
    return DecodedWeights(integers, integer_scales=scales, block_scales=_half(blocks, 208))
