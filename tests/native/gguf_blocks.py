"""Random GGUF tensors for the GEMM tests: all fields are random, and there are half floats of every kind.

Unlike those of tests/support/random_weights.py these do not look like a model's: sub-scales, minima and integers take
all values, and the half floats include zeros, subnormals and both signs.
"""

from __future__ import annotations

from dataclasses import dataclass

import gguf
import numpy as np
import numpy.typing as npt
from gguf import quants

FLOAT_TYPES = ("F32", "F16", "BF16")
SMALL_BLOCK_TYPES = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL")
LARGE_BLOCK_TYPES = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
QUANTIZED_TYPES = SMALL_BLOCK_TYPES + LARGE_BLOCK_TYPES
ALL_TYPES = FLOAT_TYPES + QUANTIZED_TYPES

HALF_OFFSETS = {
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "IQ4_NL": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


@dataclass(frozen=True)
class RawTensor:
    """A tensor as it is in a file: `data` is uint8 [outputs, bytes of a row]."""

    weight_type: str
    data: npt.NDArray[np.uint8]
    inputs: int

    @property
    def type_id(self) -> int:
        return int(gguf.GGMLQuantizationType[self.weight_type])

    @property
    def outputs(self) -> int:
        return len(self.data)

    @property
    def blocks(self) -> npt.NDArray[np.uint8]:
        """The data by blocks, uint8 [outputs, blocks of a row, bytes of a block]."""
        _, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[self.weight_type]]
        return self.data.reshape(self.outputs, -1, block_bytes)

    def dequantized(self) -> npt.NDArray[np.float32]:
        """Returns the weights as the `gguf` package dequantizes them, float32 [outputs, inputs]."""
        return quants.dequantize(self.data, gguf.GGMLQuantizationType[self.weight_type])


def allowed_inputs(weight_type: str) -> tuple[int, ...]:
    """Returns the row lengths to test, with incomplete super-blocks if the type's blocks allow them."""
    if weight_type in LARGE_BLOCK_TYPES:
        return (256, 512, 1536)
    return (32, 96, 256, 576, 896)


def random_halves(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float16]:
    """Returns finite half floats of either sign. Most are of ordinary size, some are zero, and some subnormal."""
    values = (rng.uniform(0.001, 0.1, shape) * rng.choice((-1, 1), shape)).astype(np.float16)
    subnormal = rng.integers(1, 0x400, shape).astype(np.uint16).view(np.float16)
    kind = rng.integers(0, 16, shape)
    return np.where(kind == 0, np.float16(0), np.where(kind == 1, subnormal, values))


def random_tensor(rng: np.random.Generator, weight_type: str, outputs: int, inputs: int) -> RawTensor:
    """Returns a tensor of random bytes with finite scales."""
    if weight_type in FLOAT_TYPES:
        values = rng.standard_normal((outputs, inputs)).astype(np.float32)
        return RawTensor(weight_type, _float_bytes(values, weight_type), inputs)
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[weight_type]]
    blocks = rng.integers(0, 256, (outputs, inputs // block_size, block_bytes), dtype=np.uint8)
    return with_halves(RawTensor(weight_type, blocks.reshape(outputs, -1), inputs), rng)


def filled_tensor(weight_type: str, outputs: int, inputs: int, byte: int, half: float) -> RawTensor:
    """Returns a tensor whose integer fields are all `byte` and whose half floats are all `half`."""
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[weight_type]]
    blocks = np.full((outputs, inputs // block_size, block_bytes), byte, np.uint8)
    for offset in HALF_OFFSETS[weight_type]:
        blocks[..., offset : offset + 2] = np.array([half], np.float16).view(np.uint8)
    return RawTensor(weight_type, blocks.reshape(outputs, -1), inputs)


def with_halves(tensor: RawTensor, rng: np.random.Generator) -> RawTensor:
    """Returns the tensor with random finite half floats in place of its own."""
    blocks = tensor.blocks.copy()
    for offset in HALF_OFFSETS[tensor.weight_type]:
        halves = random_halves(rng, blocks.shape[:2])
        blocks[..., offset : offset + 2] = halves[..., None].view(np.uint8)
    return RawTensor(tensor.weight_type, blocks.reshape(tensor.data.shape), tensor.inputs)


def _float_bytes(values: npt.NDArray[np.float32], weight_type: str) -> npt.NDArray[np.uint8]:
    if weight_type == "F32":
        return values.view(np.uint8)
    if weight_type == "F16":
        return values.astype(np.float16).view(np.uint8)
    return quants.quantize(values, gguf.GGMLQuantizationType.BF16).view(np.uint8).reshape(len(values), -1)
