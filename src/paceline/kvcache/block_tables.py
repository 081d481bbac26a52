"""Block tables turn the logical positions of a sequence into slots of a KV store.

Position p of a sequence is slot `block_table[p // block_size] * block_size + p % block_size` (core/batch.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.core import Int32Array


def slot_of(block_table: Sequence[int], position: int, block_size: int) -> int:
    """Returns the slot of one position."""
    return block_table[position // block_size] * block_size + position % block_size


def pad_block_tables(block_tables: Sequence[Sequence[int]]) -> Int32Array:
    """Returns the tables as int32 [tables, blocks of the longest table]; shorter rows are filled up with 0."""
    padded = np.zeros((len(block_tables), max(map(len, block_tables), default=0)), np.int32)
    for row, table in zip(padded, block_tables, strict=True):
        row[: len(table)] = table
    return padded
