"""Builds batches for draft models: runs of consecutive tokens of several sequences, without trees."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np

from paceline.core import Batch
from paceline.kvcache.block_tables import pad_block_tables, slot_of


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Tokens at consecutive positions of one sequence. `needs_logits` asks for the logits of the last `num_logits`."""

    block_table: list[int]
    first_position: int
    token_ids: list[int]
    needs_logits: bool
    num_logits: int = 1


def build_chain_batch(runs: list[TokenRun], block_size: int) -> Batch:
    """Returns the batch of all runs. Its logits have the rows of the runs that need them, in order."""
    positions = [range(run.first_position, run.first_position + len(run.token_ids)) for run in runs]
    slots = [
        slot_of(run.block_table, position, block_size)
        for run, own in zip(runs, positions, strict=True)
        for position in own
    ]
    ends = accumulate(map(len, positions))
    return Batch(
        token_ids=np.array([token_id for run in runs for token_id in run.token_ids], np.int32),
        positions=np.array(list(chain.from_iterable(positions)), np.int32),
        slots=np.array(slots, np.int32),
        sequence_indices=np.array([index for index, own in enumerate(positions) for _ in own], np.int32),
        block_tables=pad_block_tables([run.block_table for run in runs]),
        path_slots=np.zeros(0, np.int32),
        path_offsets=np.zeros(len(slots) + 1, np.int32),
        logit_rows=np.array(
            [
                row
                for run, end in zip(runs, ends, strict=True)
                if run.needs_logits
                for row in range(end - run.num_logits, end)
            ],
            np.int32,
        ),
    )
