"""Batches of the draft model: runs of consecutive tokens of some sequences, without trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.core import Batch
from paceline.kvcache.block_tables import pad_block_tables, slots_of


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Tokens at consecutive positions of one sequence; `needs_logits` asks for those of the last token."""

    block_table: list[int]
    first_position: int
    token_ids: list[int]
    needs_logits: bool


def build_chain_batch(runs: list[TokenRun], block_size: int) -> Batch:
    """The batch of all runs; the i-th row of logits is the i-th run's that needs them."""
    lengths = [len(run.token_ids) for run in runs]
    positions = np.concatenate([np.arange(len(run.token_ids), dtype=np.int32) + run.first_position for run in runs])
    indices = np.repeat(np.arange(len(runs), dtype=np.int32), lengths)
    tables = pad_block_tables([run.block_table for run in runs])
    last_rows = np.cumsum(lengths, dtype=np.int32) - 1
    return Batch(
        token_ids=np.array([token_id for run in runs for token_id in run.token_ids], dtype=np.int32),
        positions=positions,
        slots=slots_of(tables, indices, positions, block_size),
        sequence_indices=indices,
        block_tables=tables,
        path_slots=np.zeros(0, dtype=np.int32),
        path_offsets=np.zeros(len(positions) + 1, dtype=np.int32),
        logit_rows=last_rows[[run.needs_logits for run in runs]],
    )
