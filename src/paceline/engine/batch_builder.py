"""Turns a schedule and its drafts into the flat arrays of a `Batch`, and verdicts into the KV moves that they need.

Draft node i of a sequence of n tokens is written to slot n + i of the sequence's block table. So the chain at the
beginning of a draft needs no path: its slots follow its positions. Every other node of a tree has a path of slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from paceline.core import Batch, Draft, Int32Array, Verdict
from paceline.engine.scheduler import ScheduledSequence
from paceline.kvcache.block_tables import pad_block_tables, slot_of


@dataclass(frozen=True, slots=True)
class StepBatch:
    """A batch, and where its logits are. Of the i-th sampled sequence, the logits of the last token are row
    `first_logit_rows[i]`, and those of draft node j are row `first_logit_rows[i] + 1 + j`.

    `scored_positions[i]` are the positions of the i-th scheduled sequence whose logits score the next token of its
    prompt. Their logits follow all others, from `first_scored_row` on, sequence after sequence.
    """

    batch: Batch
    first_logit_rows: list[int]
    scored_positions: list[range]
    first_scored_row: int

    @property
    def has_scored_rows(self) -> bool:
        """Whether any row scores a token of a prompt."""
        return self.first_scored_row < len(self.batch.logit_rows)


@dataclass(slots=True)
class _Rows:
    """The rows collected so far, as lists, which are faster than arrays for the few rows of a step. `paths` has, for
    each row that needs a path, the slots of that path."""

    token_ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    sequence_indices: list[int] = field(default_factory=list)
    paths: dict[int, list[int]] = field(default_factory=dict)
    logit_rows: list[int] = field(default_factory=list)
    first_logit_rows: list[int] = field(default_factory=list)
    scored_rows: list[int] = field(default_factory=list)
    scored_positions: list[range] = field(default_factory=list)

    def add(self, index: int, item: ScheduledSequence, draft: Draft, block_size: int) -> None:
        """Adds the rows of the sequence with this index, and then the rows of its draft."""
        token_ids = item.sequence.token_ids
        first = item.sequence.num_computed_tokens
        own = range(first, first + item.num_rows)
        self._add_scored(item, own)
        self.token_ids += token_ids[own.start : own.stop]
        self.positions += own
        table = item.sequence.block_table
        self.slots += [slot_of(table, position, block_size) for position in own]
        if len(draft):
            self._add_draft(draft, len(token_ids), table, block_size)
        self.sequence_indices += [index] * (item.num_rows + len(draft))
        if item.reaches_end:
            self.first_logit_rows.append(len(self.logit_rows))
            self.logit_rows += range(len(self.token_ids) - len(draft) - 1, len(self.token_ids))

    def _add_scored(self, item: ScheduledSequence, own: range) -> None:
        """Notes which of the rows that are added next score a token of the prompt."""
        is_wanted = item.state.prompt_logprobs is not None
        scored = range(own.start, min(own.stop, item.sequence.num_prompt_tokens - 1)) if is_wanted else range(0)
        self.scored_positions.append(scored)
        self.scored_rows += range(len(self.token_ids), len(self.token_ids) + len(scored))

    def _add_draft(self, draft: Draft, length: int, table: list[int], block_size: int) -> None:
        first_row = len(self.token_ids)
        behind = range(length, length + len(draft))
        slots = [slot_of(table, position, block_size) for position in behind]
        self.token_ids += draft.token_ids
        self.slots += slots
        if draft.is_chain:
            self.positions += behind
            return
        for node in range(len(draft)):
            path = draft.path_to(node)
            self.positions.append(length - 1 + len(path))
            if len(path) <= node:  # otherwise the path's slots follow its positions, as in a chain
                self.paths[first_row + node] = [slots[ancestor] for ancestor in path]

    def path_offsets(self) -> Int32Array:
        """Returns where each row's path begins in `path_slots`, and where the last path ends."""
        lengths = np.zeros(len(self.token_ids) + 1, np.int32)
        for row, path in self.paths.items():
            lengths[row + 1] = len(path)
        return np.cumsum(lengths, dtype=np.int32) if self.paths else lengths


def build_batch(scheduled: Sequence[ScheduledSequence], drafts: Sequence[Draft], block_size: int) -> StepBatch:
    """Returns the batch of all scheduled sequences; `drafts` has a draft for each of them, which may be empty."""
    rows = _Rows()
    for index, (item, draft) in enumerate(zip(scheduled, drafts, strict=True)):
        rows.add(index, item, draft, block_size)
    batch = Batch(
        token_ids=np.array(rows.token_ids, np.int32),
        positions=np.array(rows.positions, np.int32),
        slots=np.array(rows.slots, np.int32),
        sequence_indices=np.array(rows.sequence_indices, np.int32),
        block_tables=pad_block_tables([item.sequence.block_table for item in scheduled]),
        path_slots=np.array(list(chain.from_iterable(rows.paths.values())), np.int32),
        path_offsets=rows.path_offsets(),
        logit_rows=np.array(rows.logit_rows + rows.scored_rows, np.int32),
    )
    return StepBatch(batch, rows.first_logit_rows, rows.scored_positions, len(rows.logit_rows))


def compaction_moves(
    sampled: Sequence[ScheduledSequence], verdicts: Sequence[Verdict], block_size: int
) -> list[tuple[int, int]]:
    """Returns the moves (source slot, destination slot) that bring accepted tree nodes to the slots of their positions.

    Call it before the commit, while the sequences have their old lengths. The indices of a path's nodes rise and are
    never smaller than their depth. So, in this order, no move overwrites a node that is still to be moved.
    """
    moves: list[tuple[int, int]] = []
    for item, verdict in zip(sampled, verdicts, strict=True):
        table, length = item.sequence.block_table, len(item.sequence.token_ids)
        for depth, node in enumerate(verdict.path):
            if node != depth:
                moves.append((slot_of(table, length + node, block_size), slot_of(table, length + depth, block_size)))
    return moves
