"""Tests batches: rows, slots and paths of prompts, chains and trees, and the KV moves of accepted tree nodes."""

from __future__ import annotations

import numpy as np

from paceline.core import Draft, Request, Sequence, Verdict
from paceline.engine.batch_builder import build_batch, compaction_moves
from paceline.engine.request_state import RequestState
from paceline.engine.scheduler import ScheduledSequence

BLOCK_SIZE = 4
TREE = Draft((50, 51, 52, 53), (None, 0, None, 2), (1.0,) * 4, "scripted")


def scheduled(token_ids: list[int], num_computed: int, num_rows: int, block_table: list[int], max_window: int = 0):
    sequence = Sequence(Request(request_id="a", prompt_token_ids=token_ids), 0, list(token_ids))
    sequence.num_computed_tokens = num_computed
    sequence.block_table = block_table
    state = RequestState(sequence, stream=None, sampler=None, max_length=100)
    return ScheduledSequence(state, num_rows, num_rows == len(token_ids) - num_computed, max_window)


def test_a_prompt_chunk_has_rows_but_no_logits_before_its_end():
    item = scheduled(list(range(10, 19)), 3, 4, [7, 2, 5])
    built = build_batch([item], [Draft()], BLOCK_SIZE)
    assert built.batch.token_ids.tolist() == [13, 14, 15, 16]
    assert built.batch.positions.tolist() == [3, 4, 5, 6]
    assert built.batch.slots.tolist() == [7 * 4 + 3, 2 * 4, 2 * 4 + 1, 2 * 4 + 2]
    assert built.batch.logit_rows.tolist() == []
    assert built.batch.path_offsets.tolist() == [0] * 5
    assert built.first_logit_rows == []


def test_the_last_chunk_asks_for_the_logits_of_its_last_row():
    built = build_batch([scheduled(list(range(6)), 2, 4, [1, 0])], [Draft()], BLOCK_SIZE)
    assert built.batch.logit_rows.tolist() == [3]
    assert built.first_logit_rows == [0]


def test_a_chain_follows_its_positions_without_a_path():
    item = scheduled([1, 2, 3], 2, 1, [9, 4], max_window=2)
    built = build_batch([item], [Draft.chain([40, 41], "scripted")], BLOCK_SIZE)
    assert built.batch.token_ids.tolist() == [3, 40, 41]
    assert built.batch.positions.tolist() == [2, 3, 4]
    assert built.batch.slots.tolist() == [38, 39, 16]
    assert built.batch.path_slots.tolist() == []
    assert built.batch.logit_rows.tolist() == [0, 1, 2]


def test_tree_nodes_lie_in_order_behind_the_text_and_branches_carry_their_path():
    item = scheduled([1, 2, 3], 2, 1, [9, 4], max_window=4)
    batch = build_batch([item], [TREE], BLOCK_SIZE).batch
    assert batch.positions.tolist() == [2, 3, 4, 3, 4]
    assert batch.slots.tolist() == [38, 39, 16, 17, 18]
    assert batch.path_offsets.tolist() == [0, 0, 0, 0, 1, 3]
    assert batch.path_slots.tolist() == [17, 17, 18]


def test_sequences_of_all_kinds_share_a_batch():
    prompt = scheduled(list(range(20, 26)), 0, 2, [3, 8])
    chain = scheduled([1, 2, 3, 4, 5], 4, 1, [0, 1, 2], max_window=3)
    tree = scheduled([1, 2, 3], 2, 1, [9, 4], max_window=4)
    plain = scheduled([7, 8], 1, 1, [6])
    drafts = [Draft(), Draft.chain([60, 61, 62], "scripted"), TREE, Draft()]
    built = build_batch([prompt, chain, tree, plain], drafts, BLOCK_SIZE)
    batch = built.batch
    assert batch.sequence_indices.tolist() == [0] * 2 + [1] * 4 + [2] * 5 + [3]
    assert batch.logit_rows.tolist() == list(range(2, 12))
    assert built.first_logit_rows == [0, 4, 9]
    assert batch.block_tables.tolist() == [[3, 8, 0], [0, 1, 2], [9, 4, 0], [6, 0, 0]]
    assert batch.path_offsets.tolist() == [0] * 10 + [1, 3, 3]
    assert batch.slots[-1] == 25
    arrays = (batch.token_ids, batch.positions, batch.slots, batch.sequence_indices, batch.block_tables)
    assert {array.dtype for array in (*arrays, batch.path_slots, batch.path_offsets, batch.logit_rows)} == {
        np.dtype(np.int32)
    }


def test_accepted_tree_nodes_move_to_where_their_positions_belong():
    item = scheduled([1, 2, 3], 2, 1, [9, 4], max_window=4)
    verdict = Verdict((2, 3), (52, 53), 99, (), 4, "scripted")
    assert compaction_moves([item], [verdict], BLOCK_SIZE) == [(17, 39), (18, 16)]


def test_an_accepted_chain_needs_no_move():
    item = scheduled([1, 2, 3], 2, 1, [9, 4], max_window=4)
    verdict = Verdict((0, 1), (52, 53), 99, (), 4, "scripted")
    assert compaction_moves([item], [verdict], BLOCK_SIZE) == []
