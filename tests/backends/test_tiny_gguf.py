"""Tests the tiny test models themselves: reproducible bytes, the wanted sizes of values, and refused shapes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import quants

from tests.support.random_weights import WEIGHT_TYPES, random_matrix
from tests.support.tiny_gguf import write_tiny_gguf, write_tiny_pair


@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
def test_random_weights_have_the_wanted_deviation_in_every_row(weight_type):
    wanted = np.array([0.05, 0.1, 0.2] * 16, np.float32)
    matrix = random_matrix(np.random.default_rng(1), weight_type, 1024, wanted)
    values = quants.dequantize(matrix, gguf.GGMLQuantizationType[weight_type])
    np.testing.assert_allclose(values.std(axis=1), wanted, rtol=0.25)
    assert abs(values.mean()) < 0.02 * wanted.mean()


def test_same_arguments_give_the_same_bytes_and_seeds_differ(tmp_path):
    first = write_tiny_gguf(tmp_path / "a.gguf", "qwen3", "Q4_K").read_bytes()
    assert write_tiny_gguf(tmp_path / "b.gguf", "qwen3", "Q4_K").read_bytes() == first
    assert write_tiny_gguf(tmp_path / "c.gguf", "qwen3", "Q4_K", seed=1).read_bytes() != first


def test_draft_of_a_pair_is_the_beginning_of_its_target(tmp_path):
    pair = write_tiny_pair(tmp_path, "qwen2", "Q8_0")
    target = {tensor.name: tensor.data for tensor in gguf.GGUFReader(pair.target).tensors}
    draft = {tensor.name: tensor.data for tensor in gguf.GGUFReader(pair.draft).tensors}
    assert set(draft) < set(target)
    assert all(np.array_equal(target[name], data) for name, data in draft.items())


def test_widths_that_a_type_cannot_hold_are_refused(tmp_path):
    with pytest.raises(ValueError, match="96 columns are no multiple of Q4_K's block size 256"):
        write_tiny_gguf(tmp_path / "a.gguf", "llama", "Q4_K", hidden_size=96)
