"""`Batch`: the rows of one forward pass as flat arrays, the only argument of `Model.forward`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Batch:
    """R rows (token positions) of S sequences; prefill chunks, decodes and drafts look alike.

    A row at logical position t attends to positions 0..t of its sequence. Positions up to t - P, where P is the
    length of the row's path, are found through the block table: position p lies in slot `block_table[p // block_size]
    * block_size + p % block_size`. The last P positions, t itself included, lie in the slots listed in the row's path
    (draft-tree nodes). P is 0 for prefill and chain rows, whose slots follow the block table. Every row writes its
    own K and V to its slot before any row attends.

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
