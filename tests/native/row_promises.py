"""Checks of what every model must promise: a row's logits have the same bits as in `plain`, however it is computed.

`plain` has the logits of every position of `text`, computed one row at a time. A model needs `NUM_BLOCKS` KV blocks.
"""

from __future__ import annotations

import numpy as np

from paceline.backends.protocol import Model
from paceline.core import Float32Array
from tests.native.decoder_runs import BLOCK_SIZE, Row, bits, build_batch, run_chunks, slot_at, text_rows

NUM_BLOCKS = 64
BATCH_SIZES = (1, 2, 3, 5, 8, 13, 32)
TABLE = list(range(NUM_BLOCKS // 2))


def check_chunkings(model: Model, text: list[int], plain: Float32Array, chunkings: list[list[int]]) -> None:
    """Checks prefill in chunks of the given sizes; the last size is repeated."""
    for sizes in chunkings:
        assert (bits(run_chunks(model, text, sizes, TABLE)) == bits(plain[: len(text)])).all(), sizes


def check_batch(model: Model, text: list[int], plain: Float32Array, lengths: list[int]) -> None:
    """Checks a batch with the last tokens of sequences of these lengths, whose blocks are scattered."""
    blocks = np.random.default_rng(len(lengths)).permutation(NUM_BLOCKS).tolist()
    tables = [[blocks.pop() for _ in range(-(-length // BLOCK_SIZE))] for length in lengths]
    prefill = [row for i, n in enumerate(lengths) for row in text_rows(text[: n - 1], 0, tables[i], i)]
    model.forward(build_batch(prefill, tables))
    last = [Row(text[n - 1], n - 1, slot_at(tables[i], n - 1), i) for i, n in enumerate(lengths)]
    logits = model.forward(build_batch(last, tables))
    for i, length in enumerate(lengths):
        assert (bits(logits[i]) == bits(plain[length - 1])).all(), (len(lengths), i)


def check_tree(model: Model, text: list[int], plain: Float32Array, start: int, depth: int) -> None:
    """Checks a tree whose branches have scattered slots, then moves the true branch to the slots of a chain and goes on
    from there."""
    model.forward(build_batch(text_rows(text[:start], 0, TABLE), [TABLE]))
    first_free = BLOCK_SIZE * len(TABLE)
    true_slots = (first_free + np.random.default_rng(3).permutation(200)[:depth]).tolist()
    rows = []
    for i in range(depth):
        false_slot = BLOCK_SIZE * (NUM_BLOCKS - 1) + i
        rows.append(Row((text[start + i] + 1) % 300, start + i, false_slot, 0, (*true_slots[:i], false_slot)))
        rows.append(Row(text[start + i], start + i, true_slots[i], 0, tuple(true_slots[: i + 1])))
    logits = model.forward(build_batch(rows, [TABLE]))
    assert (bits(logits[1::2]) == bits(plain[start : start + depth])).all()
    assert (bits(logits[0]) != bits(plain[start])).any()

    model.kv.move([(slot, slot_at(TABLE, start + i)) for i, slot in enumerate(true_slots)])
    end = start + depth
    logits = model.forward(build_batch(text_rows(text[end:], end, TABLE), [TABLE]))
    assert (bits(logits) == bits(plain[end:])).all()


def check_restored_blocks(model: Model, other: Model, text: list[int], plain: Float32Array, start: int) -> None:
    """Checks that `other` can go on at `start` with the KV that `model` computed, in other blocks."""
    table = TABLE[: -(-len(text) // BLOCK_SIZE)]
    model.forward(build_batch(text_rows(text[:start], 0, table), [table]))
    saved = [model.kv.read_block(block) for block in table]
    new_table = [NUM_BLOCKS - 1 - 2 * block for block in table]
    for block, data in zip(new_table, saved, strict=True):
        other.kv.write_block(block, data)
    logits = other.forward(build_batch(text_rows(text[start:], start, new_table), [new_table]))
    assert (bits(logits) == bits(plain[start : len(text)])).all()
