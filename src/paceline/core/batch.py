"""`Batch`: the rows of one forward pass as flat arrays, the only argument of `Model.forward`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Batch:
    """R rows (token positions) of S sequences. Rows of prefill chunks, decodes and drafts look alike.

    A row at logical position t attends to positions 0..t of its sequence. Their slots are found through the block
    table: position p lies in slot `block_table[p // block_size] * block_size + p % block_size`. A node on a branch of a
    draft tree has a path of P slots besides; its last P positions, t itself included, lie in these slots instead. P is
    0 for all other rows. Every row writes its own K and V to its slot before any row attends.

    - `token_ids`, `positions`, `slots`, `sequence_indices`: int32 [R]
    - `block_tables`: int32 [S, max_blocks], rows padded with 0
    - `path_slots`: int32 [sum of P], `path_offsets`: int32 [R + 1]
    - `logit_rows`: int32 [L], the rows whose logits are wanted, in the order of the result
    """

    token_ids: Int32Array
    positions: Int32Array
    slots: Int32Array
    sequence_indices: Int32Array
    block_tables: Int32Array
    path_slots: Int32Array
    path_offsets: Int32Array
    logit_rows: Int32Array

    @property
    def num_rows(self) -> int:
        """Number of rows R."""
        return len(self.token_ids)
