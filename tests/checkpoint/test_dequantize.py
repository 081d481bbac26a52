"""Dequantized weights equal those of the `gguf` package bit for bit, for random blocks and for real tensors."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from paceline.checkpoint import GgmlType, GgufFile, GgufTensor, dequantize
from paceline.core.errors import UnsupportedModelError

# Byte offsets of the half floats in a block. Random bits there could be NaN or infinite.
HALF_OFFSETS = {
    GgmlType.F16: (0,),
    GgmlType.Q8_0: (0,),
    GgmlType.Q4_0: (0,),
    GgmlType.Q4_1: (0, 2),
    GgmlType.Q5_0: (0,),
    GgmlType.Q5_1: (0, 2),
    GgmlType.Q2_K: (80, 82),
    GgmlType.Q3_K: (108,),
    GgmlType.Q4_K: (0, 2),
    GgmlType.Q5_K: (0, 2),
    GgmlType.Q6_K: (208,),
    GgmlType.IQ4_NL: (0,),
}
FLOATS = {GgmlType.F32: np.dtype(np.float32), GgmlType.BF16: np.dtype(np.uint16)}


def random_blocks(tensor_type: GgmlType, num_blocks: int) -> np.ndarray:
    """Returns blocks, uint8 [num_blocks, type_size_bytes], with random integers and with scales in [-2, 2]."""
    generator = np.random.default_rng(tensor_type)
    blocks = generator.integers(0, 256, (num_blocks, tensor_type.type_size_bytes), dtype=np.uint8)
    for offset in HALF_OFFSETS.get(tensor_type, ()):
        scales = generator.uniform(-2, 2, (num_blocks, 1)).astype(np.float16)
        blocks[:, offset : offset + 2] = scales.view(np.uint8)
    if tensor_type in FLOATS:
        floats = generator.normal(size=(num_blocks, 1)).astype(np.float32).view(np.uint8)
        blocks[:] = floats[:, -tensor_type.type_size_bytes :]
    return blocks


def expected_weights(data: np.ndarray, tensor_type: GgmlType) -> np.ndarray:
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType(int(tensor_type)))


@pytest.mark.parametrize("tensor_type", [*HALF_OFFSETS, *FLOATS], ids=lambda tensor_type: tensor_type.name)
def test_random_blocks_decode_like_the_gguf_package(tensor_type: GgmlType):
    num_rows, blocks_per_row = 24, 3
    blocks = random_blocks(tensor_type, num_rows * blocks_per_row)
    shape = (num_rows, blocks_per_row * tensor_type.block_size)

    weights = dequantize(GgufTensor("blk.0.weight", shape, tensor_type, blocks.reshape(-1)))

    assert weights.dtype == np.float32
    assert weights.shape == shape
    assert np.isfinite(weights).all()
    expected = expected_weights(blocks.reshape(num_rows, -1), tensor_type)
    np.testing.assert_array_equal(weights.view(np.uint32), expected.view(np.uint32))


def test_large_tensors_decode_the_same_as_their_pieces():
    num_rows, num_columns = 5, 1 << 18
    blocks = random_blocks(GgmlType.Q4_K, num_rows * num_columns // 256)
    whole = dequantize(GgufTensor("weight", (num_rows, num_columns), GgmlType.Q4_K, blocks.reshape(-1)))
    rows = [dequantize(GgufTensor("row", (num_columns,), GgmlType.Q4_K, row)) for row in blocks.reshape(num_rows, -1)]
    np.testing.assert_array_equal(whole, np.stack(rows))


def test_block_sizes_are_those_of_the_gguf_package():
    for tensor_type in GgmlType:
        sizes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(int(tensor_type))]
        assert (tensor_type.block_size, tensor_type.type_size_bytes) == sizes
        assert tensor_type.name == gguf.GGMLQuantizationType(int(tensor_type)).name


def test_a_type_without_decoder_is_refused_by_name():
    data = np.zeros(GgmlType.IQ2_XXS.type_size_bytes, np.uint8)
    with pytest.raises(UnsupportedModelError, match=r"'blk\.0\.ffn_up\.weight' has type IQ2_XXS"):
        dequantize(GgufTensor("blk.0.ffn_up.weight", (256,), GgmlType.IQ2_XXS, data))


def assert_one_tensor_of_each_type_matches(path: Path) -> set[GgmlType]:
    with GgufFile.open(path) as model:
        smallest = {tensor.type: tensor for tensor in sorted(model.tensors.values(), key=lambda t: -t.data.nbytes)}
        for tensor in smallest.values():
            data = tensor.data.reshape(*tensor.shape[:-1], -1)
            np.testing.assert_array_equal(dequantize(tensor), expected_weights(data, tensor.type))
        return set(smallest)


def test_real_tensors_decode_like_the_gguf_package(smollm2_path: Path):
    types = assert_one_tensor_of_each_type_matches(smollm2_path)
    assert types == {GgmlType.F32, GgmlType.Q4_1, GgmlType.Q8_0}


@pytest.mark.large
def test_tensors_of_the_large_models_decode_like_the_gguf_package(coder_target_path: Path, coder_draft_path: Path):
    types = assert_one_tensor_of_each_type_matches(coder_target_path)
    types |= assert_one_tensor_of_each_type_matches(coder_draft_path)
    assert types == {GgmlType.F32, GgmlType.Q4_K, GgmlType.Q5_0, GgmlType.Q6_K, GgmlType.Q8_0}
