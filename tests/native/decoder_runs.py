"""Runs a model over a text in different ways, for tests that demand the same bits from all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from paceline.backends.protocol import Model
from paceline.core import Batch, Float32Array

BLOCK_SIZE = 16


@dataclass(frozen=True)
class Row:
    """One row of a batch. `path` lists the slots of its last positions if these do not follow the block table."""

    token_id: int
    position: int
    slot: int
    sequence: int = 0
    path: tuple[int, ...] = ()


def slot_at(block_table: list[int], position: int) -> int:
    """Returns the slot of a position by the block table."""
    return block_table[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE


def text_rows(text: list[int], first: int, block_table: list[int], sequence: int = 0) -> list[Row]:
    """Returns the rows for `text`, whose first token is at position `first`."""
    return [Row(token, first + i, slot_at(block_table, first + i), sequence) for i, token in enumerate(text)]


def build_batch(rows: list[Row], block_tables: list[list[int]]) -> Batch:
    """Returns the batch of these rows, with logits for all of them."""
    width = max(len(table) for table in block_tables)
    tables = np.zeros((len(block_tables), width), np.int32)
    for index, table in enumerate(block_tables):
        tables[index, : len(table)] = table
    lengths = [len(row.path) for row in rows]
    return Batch(
        token_ids=np.array([row.token_id for row in rows], np.int32),
        positions=np.array([row.position for row in rows], np.int32),
        slots=np.array([row.slot for row in rows], np.int32),
        sequence_indices=np.array([row.sequence for row in rows], np.int32),
        block_tables=tables,
        path_slots=np.array([slot for row in rows for slot in row.path], np.int32),
        path_offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        logit_rows=np.arange(len(rows), dtype=np.int32),
    )


def run_chunks(model: Model, text: list[int], chunk_sizes: Iterable[int], block_table: list[int]) -> Float32Array:
    """Returns the logits of every position of `text`, computed in chunks of these sizes; the last size is repeated."""
    logits = []
    position = 0
    sizes = iter(chunk_sizes)
    size = 1
    while position < len(text):
        size = next(sizes, size)
        rows = text_rows(text[position : position + size], position, block_table)
        logits.append(model.forward(build_batch(rows, [block_table])).copy())
        position += size
    return np.concatenate(logits)


def bits(values: Float32Array) -> np.ndarray:
    """Returns the bits of the floats, so that `==` even distinguishes -0 from 0."""
    return np.ascontiguousarray(values).view(np.uint32)
