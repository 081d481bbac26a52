"""GEMM kernels give right numbers, with equal bits on every instruction set and in every batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from paceline import _native
from tests.native.gemm_contract import contract_gemm, decode, round_activations
from tests.native.gguf_blocks import (
    ALL_TYPES,
    FLOAT_TYPES,
    QUANTIZED_TYPES,
    RawTensor,
    allowed_inputs,
    filled_tensor,
    random_tensor,
)

kernels = _native.kernels
Rounding = _native.ActivationRounding
INTEGER_SCALE_TYPES = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
ROUNDINGS = (Rounding.EIGHT_BITS, Rounding.EIGHT_BITS_OF_NORMED, Rounding.FIFTEEN_BITS)
INSTRUCTION_SETS = tuple(_native.instruction_sets())
FAST_SET = INSTRUCTION_SETS[-1]
Float32Array = npt.NDArray[np.float32]


def pack(tensor: RawTensor) -> kernels.PackedMatrix:
    return kernels.pack(tensor.type_id, tensor.data.reshape(-1), tensor.outputs, tensor.inputs)


def gemm(
    instruction_set: str, tensor: RawTensor, rows: Float32Array, rounding: Rounding = Rounding.EIGHT_BITS
) -> Float32Array:
    packed = pack(tensor)
    return kernels.gemm(instruction_set, packed, rows, 0, packed.column_blocks, rounding)


def random_rows(rng: np.random.Generator, num_rows: int, inputs: int) -> Float32Array:
    """Returns rows whose magnitude differs from super-block to super-block, with some zeros and a few outliers."""
    sizes = np.exp(rng.normal(0, 2, (num_rows, -(-inputs // 256)))).repeat(256, axis=1)[:, :inputs]
    rows = rng.standard_normal((num_rows, inputs)) * sizes
    rows = np.where(rng.random(rows.shape) < 0.05, 0, rows)
    return np.where(rng.random(rows.shape) < 0.001, 200 * sizes, rows).astype(np.float32)


def assert_same_bits(actual: Float32Array, expected: Float32Array) -> None:
    np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("outputs", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("weight_type", ALL_TYPES)
def test_instruction_sets_give_equal_bits(weight_type: str, outputs: int, rounding: Rounding) -> None:
    rng = np.random.default_rng(outputs)
    for inputs in allowed_inputs(weight_type):
        tensor = random_tensor(rng, weight_type, outputs, inputs)
        rows = random_rows(rng, 5, inputs)
        oracle = gemm("scalar", tensor, rows, rounding)
        assert np.isfinite(oracle).all()
        for instruction_set in INSTRUCTION_SETS:
            assert_same_bits(gemm(instruction_set, tensor, rows, rounding), oracle)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("byte", [0x00, 0x0F, 0x80, 0x7F, 0xFF])
@pytest.mark.parametrize("weight_type", QUANTIZED_TYPES)
def test_extreme_weights_and_activations_stay_exact(weight_type: str, byte: int, rounding: Rounding) -> None:
    inputs = allowed_inputs(weight_type)[-1]
    rows = np.full((4, inputs), 3.0, np.float32)
    rows[1] = -3.0
    rows[2] = np.where(np.arange(inputs) % 2, 3.0, -3.0)
    rows[3] = 0.0
    for half in (0.0, 2.0**-24, -1.5, 6.0e-5, 1000.0):
        tensor = filled_tensor(weight_type, 17, inputs, byte, half)
        oracle = gemm("scalar", tensor, rows, rounding)
        expected = rows.astype(np.float64) @ tensor.dequantized().T.astype(np.float64)
        magnitude = np.abs(rows).astype(np.float64) @ np.abs(tensor.dequantized()).T.astype(np.float64)
        assert (np.abs(oracle - expected) <= 1e-4 * magnitude).all()
        assert (oracle[3] == 0).all()
        for instruction_set in INSTRUCTION_SETS:
            assert_same_bits(gemm(instruction_set, tensor, rows, rounding), oracle)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("weight_type", ALL_TYPES)
def test_a_row_that_is_not_finite_has_no_finite_result_and_spoils_no_other(weight_type, rounding) -> None:
    rng = np.random.default_rng(4)
    inputs = allowed_inputs(weight_type)[-1]
    tensor = random_tensor(rng, weight_type, 24, inputs)
    rows = random_rows(rng, 12, inputs)
    clean = gemm("scalar", tensor, rows, rounding)
    rows[3, inputs - 1] = np.nan
    rows[8, 0] = np.inf
    rows[9, inputs // 2] = -np.inf
    spoilt = np.isin(np.arange(len(rows)), [3, 8, 9])
    for instruction_set in INSTRUCTION_SETS:
        results = gemm(instruction_set, tensor, rows, rounding)
        assert not np.isfinite(results[spoilt]).any()
        assert_same_bits(results[~spoilt], clean[~spoilt])


@pytest.mark.parametrize("byte", [0x00, 0xFF])
@pytest.mark.parametrize("total", [1022, 1023, 1024, 1025])
@pytest.mark.parametrize("weight_type", INTEGER_SCALE_TYPES)
def test_sums_stay_exact_up_to_and_beyond_what_fits_16_bits(weight_type: str, total: int, byte: int) -> None:
    """Kernels may use 16-bit sums if the magnitudes of sixteen integers add up to at most 1023."""
    sixteen = np.zeros(16, np.float32)
    sixteen[:8] = 127
    sixteen[8] = total - 8 * 127
    rows = np.random.default_rng(total).integers(-30, 30, (100, 1024)).astype(np.float32)
    rows[0] = rows[7] = np.tile(sixteen, 64)
    rows[1] = rows[33] = -rows[0]
    rows[2, :16] = sixteen
    rows[:, ::256] = 127
    tensor = filled_tensor(weight_type, 17, 1024, byte, 1.0)
    oracle = gemm("scalar", tensor, rows)
    expected = rows.astype(np.float64) @ tensor.dequantized().T.astype(np.float64)
    magnitude = np.abs(rows).astype(np.float64) @ np.abs(tensor.dequantized()).T.astype(np.float64)
    assert (np.abs(oracle - expected) <= 1e-6 * magnitude).all()
    for instruction_set in INSTRUCTION_SETS:
        for num_rows in (1, 3, 8, 12, 40, 100):
            assert_same_bits(gemm(instruction_set, tensor, rows[:num_rows]), oracle[:num_rows])


@pytest.mark.parametrize("weight_type", INTEGER_SCALE_TYPES)
def test_rows_with_no_few_and_many_outliers_share_a_batch(weight_type: str) -> None:
    """Kernels multiply the high plane in two ways: up to 8 quads one by one, and more than 8 as a whole plane."""
    rng = np.random.default_rng(6)
    rounding = Rounding.EIGHT_BITS_OF_NORMED
    num_outliers = np.array([0, 1, 2, 8, 9, 16, 1, 0, 3, 7, 12, 1])
    rows = rng.standard_normal((len(num_outliers), 512)).astype(np.float32)
    for row, count in zip(rows, num_outliers, strict=True):
        row[rng.choice(64, count, replace=False) * 4 + rng.integers(0, 4, count)] = 3000 * rng.choice((-1, 1), count)
    planes, _, _, _ = kernels.quantize(FAST_SET, rows, rounding)
    high_quads = planes[:, :, 1].reshape(len(rows), 128, 4).any(axis=2).sum(axis=1)
    np.testing.assert_array_equal(high_quads, num_outliers)
    tensor = random_tensor(rng, weight_type, 24, 512)
    oracle = gemm("scalar", tensor, rows, rounding)
    if weight_type in {"Q4_K", "Q6_K"}:
        assert_same_bits(oracle, contract_gemm(decode(tensor), round_activations(rows, rounding)))
    for instruction_set in INSTRUCTION_SETS:
        for first in range(len(rows)):
            for last in range(first + 1, len(rows) + 1):
                part = gemm(instruction_set, tensor, rows[first:last], rounding)
                assert_same_bits(part, oracle[first:last])
        many = gemm(instruction_set, tensor, np.tile(rows, (9, 1)), rounding)
        assert_same_bits(many, np.tile(oracle, (9, 1)))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("weight_type", ALL_TYPES)
def test_a_rows_bits_do_not_depend_on_the_number_of_rows(
    weight_type: str, instruction_set: str, rounding: Rounding
) -> None:
    rng = np.random.default_rng(3)
    inputs = allowed_inputs(weight_type)[1]
    packed = pack(random_tensor(rng, weight_type, 24, inputs))
    rows = random_rows(rng, 110, inputs)
    alone = np.concatenate([kernels.gemm(instruction_set, packed, row[None], 0, 2, rounding) for row in rows])
    for num_rows in (*range(1, 34), 47, 48, 64, 95, 96, 97, 110):
        assert_same_bits(kernels.gemm(instruction_set, packed, rows[:num_rows], 0, 2, rounding), alone[:num_rows])
        assert_same_bits(kernels.gemm(instruction_set, packed, rows[-num_rows:], 0, 2, rounding), alone[-num_rows:])


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("weight_type", ALL_TYPES)
def test_column_ranges_write_their_own_columns_and_the_same_bits(weight_type: str, instruction_set: str) -> None:
    rng = np.random.default_rng(4)
    inputs = allowed_inputs(weight_type)[0]
    packed = pack(random_tensor(rng, weight_type, 77, inputs))
    for num_rows in (3, 40, 100):
        rows = random_rows(rng, num_rows, inputs)
        whole = kernels.gemm(instruction_set, packed, rows, 0, 5)
        for begin, end in ((0, 1), (1, 3), (3, 5), (4, 5), (2, 2)):
            part = kernels.gemm(instruction_set, packed, rows, begin, end)
            columns = slice(16 * begin, min(16 * end, 77))
            assert_same_bits(part[:, columns], whole[:, columns])
            assert (np.delete(part, np.arange(77)[columns], axis=1) == 0).all()


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("weight_type", QUANTIZED_TYPES)
def test_many_column_blocks_and_rows_give_the_bits_of_one_row(weight_type: str, rounding: Rounding) -> None:
    rng = np.random.default_rng(9)
    inputs = allowed_inputs(weight_type)[-1]
    packed = pack(random_tensor(rng, weight_type, 16 * 19 + 5, inputs))
    rows = random_rows(rng, 37, inputs)
    alone = np.concatenate([kernels.gemm("scalar", packed, row[None], 0, 20, rounding) for row in rows])
    for instruction_set in INSTRUCTION_SETS:
        assert_same_bits(kernels.gemm(instruction_set, packed, rows, 0, 20, rounding), alone)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("weight_type", QUANTIZED_TYPES)
def test_products_equal_those_of_the_dequantized_weights(weight_type: str, rounding: Rounding) -> None:
    rng = np.random.default_rng(5)
    for inputs in allowed_inputs(weight_type):
        tensor = random_tensor(rng, weight_type, 40, inputs)
        rows = random_rows(rng, 9, inputs)
        activations = round_activations(rows, rounding)
        rounded = activations.integers * activations.scales.astype(np.float64).repeat(256, axis=1)[:, :inputs]
        weights = tensor.dequantized().astype(np.float64)
        magnitude = np.abs(rounded) @ np.abs(weights).T
        error = np.abs(gemm(FAST_SET, tensor, rows, rounding) - rounded @ weights.T)
        assert (error <= 1e-5 * magnitude).all()
        assert (magnitude > 0).any()


@pytest.mark.parametrize("weight_type", FLOAT_TYPES)
def test_float_weights_are_used_as_they_are(weight_type: str) -> None:
    rng = np.random.default_rng(6)
    for inputs in (1, 7, *allowed_inputs(weight_type)):
        tensor = random_tensor(rng, weight_type, 19, inputs)
        rows = random_rows(rng, 3, inputs)
        weights = tensor.dequantized().astype(np.float64)
        error = np.abs(gemm(FAST_SET, tensor, rows) - rows.astype(np.float64) @ weights.T)
        assert (error <= 1e-6 * inputs**0.5 * (np.abs(rows) @ np.abs(weights).T)).all()


@pytest.mark.parametrize("weight_type", ["Q4_K", "Q5_1", "Q6_K"])
def test_matrices_beyond_what_a_cache_holds_are_those_of_the_contract(weight_type: str) -> None:
    """Kernels process such matrices in strips of column blocks; this matrix has several strips."""
    rng = np.random.default_rng(9)
    tensor = random_tensor(rng, weight_type, 100, 5120)
    rows = random_rows(rng, 20, 5120)
    expected = contract_gemm(decode(tensor), round_activations(rows, Rounding.EIGHT_BITS))
    for instruction_set in INSTRUCTION_SETS:
        assert_same_bits(gemm(instruction_set, tensor, rows), expected)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("weight_type", ["Q4_K", "Q5_1", "Q6_K"])
def test_results_are_those_of_the_written_contract(weight_type: str, instruction_set: str, rounding: Rounding) -> None:
    rng = np.random.default_rng(7)
    for inputs in allowed_inputs(weight_type):
        tensor = random_tensor(rng, weight_type, 33, inputs)
        rows = random_rows(rng, 6, inputs)
        expected = contract_gemm(decode(tensor), round_activations(rows, rounding))
        assert_same_bits(gemm(instruction_set, tensor, rows, rounding), expected)


def test_misfits_are_refused() -> None:
    tensor = random_tensor(np.random.default_rng(8), "Q4_0", 20, 64)
    packed = pack(tensor)
    rows = np.zeros((1, 64), np.float32)
    with pytest.raises(ValueError, match="rows of 32 values for weights with 64 inputs"):
        kernels.gemm(FAST_SET, packed, rows[:, :32].copy(), 0, 2)
    with pytest.raises(IndexError, match="column blocks 1 to 3 of 2"):
        kernels.gemm(FAST_SET, packed, rows, 1, 3)
    with pytest.raises(ValueError, match="instruction set 'sse' cannot run on this machine"):
        kernels.gemm("sse", packed, rows, 0, 2)
