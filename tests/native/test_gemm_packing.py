"""Tests repacked weights: their size, what is refused, and single rows that are expanded to floats."""

from __future__ import annotations

import numpy as np
import pytest

from paceline import _native
from tests.native.gguf_blocks import ALL_TYPES, QUANTIZED_TYPES, allowed_inputs, random_tensor

kernels = _native.kernels
# The 6-bit scales of Q3_K become bytes, so 110 bytes become 114.
LARGEST_RATIO = {"Q3_K": 1.04}


@pytest.mark.parametrize("weight_type", ALL_TYPES)
def test_dequantized_rows_equal_those_of_the_gguf_package(weight_type: str) -> None:
    rng = np.random.default_rng(1)
    for inputs in allowed_inputs(weight_type):
        tensor = random_tensor(rng, weight_type, 7, inputs)
        rows = [kernels.dequantize_row(tensor.type_id, row, inputs) for row in tensor.data]
        np.testing.assert_array_equal(np.array(rows), tensor.dequantized().reshape(7, inputs))


@pytest.mark.parametrize("weight_type", ALL_TYPES)
def test_packed_bytes_are_hardly_more_than_the_files(weight_type: str) -> None:
    for inputs in allowed_inputs(weight_type):
        tensor = random_tensor(np.random.default_rng(2), weight_type, 64, inputs)
        packed = kernels.pack(tensor.type_id, tensor.data.reshape(-1), 64, inputs)
        ratio = packed.size_bytes / tensor.data.size
        assert 1.0 <= ratio <= LARGEST_RATIO.get(weight_type, 1.03)


@pytest.mark.parametrize("weight_type", QUANTIZED_TYPES)
def test_missing_columns_are_padded(weight_type: str) -> None:
    inputs = allowed_inputs(weight_type)[0]
    tensor = random_tensor(np.random.default_rng(3), weight_type, 17, inputs)
    packed = kernels.pack(tensor.type_id, tensor.data.reshape(-1), 17, inputs)
    assert (packed.outputs, packed.inputs, packed.column_blocks) == (17, inputs, 2)


def test_what_has_no_layout_is_refused() -> None:
    data = np.zeros(144, np.uint8)
    with pytest.raises(ValueError, match="weight type 99 is not supported"):
        kernels.pack(99, data, 1, 256)
    with pytest.raises(ValueError, match="a row of 128 weights does not consist of whole blocks of 256"):
        kernels.pack(12, data, 1, 128)
    with pytest.raises(ValueError, match="a weight matrix with 0 outputs has no layout"):
        kernels.pack(12, data, 0, 256)
    with pytest.raises(ValueError, match="a tensor of 144 bytes, but its shape needs 288"):
        kernels.pack(12, data, 2, 256)
    with pytest.raises(ValueError, match="a row of 144 bytes, but 512 weights need 288"):
        kernels.dequantize_row(12, data, 512)
