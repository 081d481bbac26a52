"""The native decoder gives a row's logits the same bits in any chunk, in any blocks and in any batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from paceline import _native
from paceline.architectures import read_model_config
from paceline.backends.native.model import NativeModel, ThreadPool
from paceline.backends.reference.model import ReferenceModel
from paceline.checkpoint import GgufFile
from paceline.core.errors import ConfigError, InsufficientMemoryError
from tests.native.decoder_runs import BLOCK_SIZE, Row, bits, build_batch, run_chunks, text_rows
from tests.native.row_promises import BATCH_SIZES, NUM_BLOCKS, check_batch, check_chunkings, check_tree
from tests.support.tiny_gguf import write_tiny_gguf

TEXT_LENGTH = 150
KINDS = [("llama", "Q4_1"), ("qwen2", "Q4_K"), ("qwen3", "Q6_K"), ("gemma3", "Q5_0"), ("llama", "F16")]


@pytest.fixture(scope="module", params=KINDS, ids=["-".join(kind) for kind in KINDS])
def gguf(request, tmp_path_factory):
    architecture, weight_type = request.param
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    with GgufFile.open(write_tiny_gguf(path, architecture, weight_type)) as opened:
        yield opened


def load(gguf, num_threads=2, instruction_set=None):
    model = NativeModel(gguf, read_model_config(gguf), threads=ThreadPool(num_threads), instruction_set=instruction_set)
    model.kv.allocate(NUM_BLOCKS)
    return model


@pytest.fixture
def text(gguf):
    rng = np.random.default_rng(7)
    return rng.integers(0, read_model_config(gguf).vocab_size, TEXT_LENGTH).tolist()


@pytest.fixture
def plain(gguf, text):
    """Returns the logits of every position, computed one row at a time."""
    return run_chunks(load(gguf), text, [1], list(range(NUM_BLOCKS)))


def test_prefill_in_any_chunking_gives_the_bits_of_decoding(gguf, text, plain):
    chunkings = [[TEXT_LENGTH], [64], [17], [1, 2, 3, 5, 8, 13, 32], [149, 1]]
    check_chunkings(load(gguf), text, plain, chunkings)


def test_threads_do_not_change_bits(gguf, text, plain):
    for num_threads in (1, 2, 3, 4):
        check_chunkings(load(gguf, num_threads), text, plain, [[33]])


@pytest.mark.parametrize("instruction_set", _native.instruction_sets())
def test_instruction_sets_give_equal_bits(gguf, text, plain, instruction_set):
    model = load(gguf, instruction_set=instruction_set)
    assert model.instruction_set == instruction_set
    check_chunkings(model, text, plain, [[40, 7, 1, 16]])


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_a_row_does_not_depend_on_its_batch(gguf, text, plain, batch_size):
    """The sequences have different lengths, so each row is at another position."""
    check_batch(load(gguf), text, plain, [5 + (11 * i) % 27 for i in range(batch_size)])


def test_a_tree_node_has_the_bits_of_the_chain(gguf, text, plain):
    check_tree(load(gguf), text, plain, start=70, depth=9)


def test_rows_without_logits_change_none_of_the_others(gguf, text, plain):
    """The last layer computes only keys and values for rows without logits; here there are two sequences at once."""
    model = load(gguf)
    tables = [list(range(10)), list(range(10, 20))]
    for first, end, wanted in ((0, 60, []), (60, 100, [0, 39]), (100, 101, [0]), (101, 140, [30, 3, 17])):
        rows = [row for i, table in enumerate(tables) for row in text_rows(text[first:end], first, table, i)]
        size = end - first
        logit_rows = np.array([*wanted, *(row + size for row in wanted)], np.int32)
        batch = dataclasses.replace(build_batch(rows, tables), logit_rows=logit_rows)
        logits = model.forward(batch)
        assert (bits(logits) == bits(plain[[first + row for row in wanted] * 2])).all()


def test_blocks_can_be_saved_and_restored(gguf, text, plain):
    model = load(gguf)
    model.forward(build_batch(text_rows(text[:40], 0, [0, 1, 2]), [[0, 1, 2]]))
    saved = [model.kv.read_block(block) for block in (0, 1, 2)]
    assert {len(block) for block in saved} == {model.kv.block_size_bytes}
    model.kv.allocate(NUM_BLOCKS)
    for block, data in zip((30, 7, 21), saved, strict=True):
        model.kv.write_block(block, data)
    table = [30, 7, 21]
    logits = model.forward(build_batch(text_rows(text[40:48], 40, table), [table]))
    assert (bits(logits) == bits(plain[40:48])).all()


def test_agrees_with_the_reference_model(gguf, text, plain):
    """The reference multiplies unrounded activations. So logits agree closely for float weights, and up to the rounding
    of activations for quantized weights."""
    reference = ReferenceModel(gguf)
    reference.kv.allocate(NUM_BLOCKS)
    expected = run_chunks(reference, text, [TEXT_LENGTH], list(range(NUM_BLOCKS)))
    is_float = gguf.tensors["blk.0.attn_q.weight"].type.name == "F16"
    difference = np.abs(plain - expected)
    assert difference.max() < (0.02 if is_float else 1.5)
    assert difference.mean() < (0.001 if is_float else 0.12)


@pytest.mark.parametrize(
    "change",
    [
        {"token_ids": 10_000},
        {"token_ids": -1},
        {"positions": 1_000_000},
        {"slots": BLOCK_SIZE * NUM_BLOCKS},
        {"sequence_indices": 1},
        {"logit_rows": 1},
        {"block_tables": [[NUM_BLOCKS]]},
        {"path_offsets": [0, 3]},
    ],
)
def test_a_batch_that_points_outside_is_refused(gguf, change):
    model = load(gguf)
    batch = build_batch([Row(1, 0, 0)], [[0]])
    arrays = {name: getattr(batch, name) for name in batch.__slots__}
    for name, value in change.items():
        arrays[name] = np.array(value if isinstance(value, list) else [value], np.int32)
    with pytest.raises(ValueError, match=r"outside|not in the batch|out of bounds|no block table"):
        model.forward(type(batch)(**arrays))


def test_a_cache_larger_than_any_memory_is_refused(gguf):
    with pytest.raises(InsufficientMemoryError, match="MiB"):
        load(gguf).kv.allocate(2**50)


def test_an_unknown_instruction_set_is_refused(gguf):
    with pytest.raises(ConfigError, match="'neon'"):
        load(gguf, instruction_set="neon")
