"""Tests what the numpy model itself promises: chunks, trees, KV storage, windows and the rounding of activations."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.backends.reference.model import ReferenceModel, round_activations
from paceline.checkpoint import GgufFile
from paceline.core import ActivationRounding, Batch
from tests.support.tiny_gguf import ARCHITECTURES, write_tiny_gguf

TOKENS = [(37 * i + 5) % 300 for i in range(60)]


def _open(tmp_path, architecture="qwen2", weight_type="F32", **options):
    model = ReferenceModel(GgufFile.open(write_tiny_gguf(tmp_path / "tiny.gguf", architecture, weight_type)), **options)
    model.kv.allocate(12)
    return model


def _batch(token_ids, positions, slots=None, block_table=range(12), paths=None):
    """Returns a batch with rows of one sequence; `paths` has the path slots of each row."""
    num_rows = len(token_ids)
    paths = paths or [[] for _ in range(num_rows)]
    arrays = (token_ids, positions, positions if slots is None else slots, [0] * num_rows, [list(block_table)])
    offsets = np.cumsum([0, *map(len, paths)])
    flat = [slot for path in paths for slot in path]
    return Batch(*(np.array(x, np.int32) for x in (*arrays, flat, offsets, range(num_rows))))


def _assert_same_logits(actual, expected):
    """Asserts that logits are nearly equal. A BLAS adds in another order for another shape, so now and then a key or
    value is rounded to the neighbouring half float."""
    differences = np.abs(actual - expected)
    assert differences.mean() < 3e-4
    assert np.count_nonzero(differences > 2e-3) <= differences.size / 1000
    assert differences.max() < 5e-3


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_chunked_prefill_gives_the_logits_of_one_pass(tmp_path, architecture):
    model = _open(tmp_path, architecture)
    whole = model.forward(_batch(TOKENS, range(60)))
    model.kv.allocate(12)
    chunks = [model.forward(_batch(TOKENS[a:b], range(a, b))) for a, b in ((0, 7), (7, 40), (40, 60))]
    _assert_same_logits(np.concatenate(chunks), whole)


def test_tree_row_has_the_logits_of_its_chain(tmp_path):
    model = _open(tmp_path)
    chain = model.forward(_batch([*TOKENS[:20], 7, 9], range(22)))[-1]
    model.forward(_batch(TOKENS[:20], range(20)))
    tree = model.forward(_batch([7, 8, 9], [20, 20, 21], slots=[100, 101, 102], paths=[[100], [101], [100, 102]]))
    _assert_same_logits(tree[2], chain)
    assert np.abs(tree[1] - tree[0]).max() > 0.5


def test_block_table_decides_where_positions_lie(tmp_path):
    model = _open(tmp_path)
    plain = model.forward(_batch(TOKENS[:40], range(40)))
    table = [9, 2, 5]
    slots = [table[p // 16] * 16 + p % 16 for p in range(40)]
    moved = model.forward(_batch(TOKENS[:40], range(40), slots=slots, block_table=table))
    np.testing.assert_array_equal(moved, plain)


def test_several_sequences_do_not_see_each_other(tmp_path):
    model = _open(tmp_path)
    alone = model.forward(_batch(TOKENS[:16], range(16)))
    both = Batch(
        token_ids=np.array(TOKENS[:16] + TOKENS[16:32], np.int32),
        positions=np.array([*range(16), *range(16)], np.int32),
        slots=np.arange(32, dtype=np.int32),
        sequence_indices=np.repeat(np.arange(2, dtype=np.int32), 16),
        block_tables=np.array([[0], [1]], np.int32),
        path_slots=np.zeros(0, np.int32),
        path_offsets=np.zeros(33, np.int32),
        logit_rows=np.arange(16, dtype=np.int32),
    )
    _assert_same_logits(model.forward(both), alone)


def test_sliding_window_hides_older_positions(tmp_path):
    path = write_tiny_gguf(tmp_path / "local.gguf", "gemma3", "F32", num_layers=1, sliding_window=8)
    model = ReferenceModel(GgufFile.open(path))
    model.kv.allocate(4)
    changed = [TOKENS[0] + 1, *TOKENS[1:20]]
    first, second = (
        model.forward(_batch(tokens, range(20), block_table=range(4))) for tokens in (TOKENS[:20], changed)
    )
    np.testing.assert_array_equal(first[8:], second[8:])
    assert np.abs(first[7] - second[7]).max() > 1e-3


def test_kv_moves_and_restores(tmp_path):
    model = _open(tmp_path)
    model.forward(_batch(TOKENS[:16], range(16)))
    saved = model.kv.read_block(0)
    assert saved.nbytes == model.kv.block_size_bytes == 2 * 2 * 2 * 16 * 2 * 64
    model.kv.write_block(3, saved)
    assert np.array_equal(model.kv.read_block(3), saved)
    model.kv.move([(0, 90), (90, 48)])
    assert np.array_equal(model.kv.read_block(3), saved)
    model.kv.move([(5, 48)])
    assert not np.array_equal(model.kv.read_block(3), saved)
    model.kv.write_block(3, saved)
    assert np.array_equal(model.kv.read_block(3), saved)
    model.kv.allocate(2)
    assert (model.kv.num_blocks, model.kv.read_block(0).any()) == (2, False)


@pytest.mark.parametrize(
    ("rounding", "limit"), [(ActivationRounding.FIFTEEN_BITS, 16256), (ActivationRounding.EIGHT_BITS, 127)]
)
def test_rounding_keeps_at_most_half_a_step_and_block_maxima(rounding, limit):
    rows = np.random.default_rng(0).standard_normal((3, 300)).astype(np.float32)
    rows[1, :256] = 0
    rounded = round_activations(rows, rounding, is_normed=False)
    for block in (slice(0, 256), slice(256, 300)):
        largest = np.abs(rows[:, block]).max(axis=1, keepdims=True)
        assert np.all(np.abs(rounded[:, block] - rows[:, block]) <= largest / limit * 0.501)
        np.testing.assert_allclose(np.abs(rounded[:, block]).max(axis=1, keepdims=True), largest, rtol=1e-6)


@pytest.mark.parametrize(
    ("weight_type", "is_changed"), [("F32", False), ("F16", False), ("Q8_0", True), ("Q4_K", True)]
)
def test_activations_are_rounded_before_quantized_weights_only(tmp_path, weight_type, is_changed):
    exact = _open(tmp_path, weight_type=weight_type).forward(_batch(TOKENS, range(60)))
    rounding = _open(tmp_path, weight_type=weight_type, activation_rounding=ActivationRounding.FIFTEEN_BITS)
    difference = np.abs(rounding.forward(_batch(TOKENS, range(60))) - exact).max()
    assert (1e-5 < difference < 0.05) if is_changed else difference == 0
