"""Tests the fixed controller's windows, the cutting of trees, and the counting of accepted tokens."""

from __future__ import annotations

import pytest

from paceline.controller.fixed import FixedController
from paceline.controller.protocol import Offer, StepRoom, level
from paceline.core import Draft, Plan, Request, SamplingParams, Sequence, SpeculationMode, SpeculationParams
from paceline.core.draft_tree import child_by_token, cut, depths
from paceline.engine.acceptance_stats import AcceptanceStats

TREE = Draft((5, 6, 7, 8), (None, 0, None, 1), (0.9, 0.8, 0.7, 0.6), "tree")


def _sequence(*, max_tokens=None, num_output=0, mode=SpeculationMode.AUTO, max_window=None, drafters=None):
    request = Request(
        request_id="s",
        prompt_token_ids=[1, 2],
        sampling=SamplingParams(max_tokens=max_tokens),
        speculation=SpeculationParams(mode=mode, max_window=max_window, drafters=drafters),
    )
    return Sequence(request=request, seed=0, token_ids=[1, 2] + [3] * num_output)


def _plan(
    sequence,
    free_draft=None,
    *,
    spare_rows=100,
    model_drafters=("draft-model",),
    with_room=("draft-model", "shared-layers"),
):
    controller = FixedController(7, *model_drafters)
    offer = Offer(16, () if free_draft is None else (free_draft,), dict.fromkeys(with_room, 0))
    [plan] = controller.plan([sequence], [offer], StepRoom(1, 0, spare_rows))
    return plan


def test_a_free_draft_is_preferred_to_the_draft_model():
    assert _plan(_sequence(), Draft.chain([1, 2, 3], "ngram")) == Plan("ngram", 3)
    assert _plan(_sequence(), Draft.chain([1] * 12, "ngram")) == Plan("ngram", 7)
    assert _plan(_sequence()) == Plan("draft-model", 7)
    assert _plan(_sequence(), model_drafters=()) == Plan("none", 0, reason="no draft")


@pytest.mark.parametrize(
    ("allowed", "plan"),
    [
        (None, Plan("draft-model", 7)),
        (("shared-layers", "draft-model"), Plan("draft-model", 7)),
        (("shared-layers",), Plan("shared-layers", 7)),
        (("ngram",), Plan("none", 0, reason="request")),
    ],
)
def test_the_first_model_that_the_request_allows_drafts(allowed, plan):
    assert _plan(_sequence(drafters=allowed), model_drafters=("draft-model", "shared-layers")) == plan


@pytest.mark.parametrize(
    ("sequence", "window"),
    [
        (_sequence(mode=SpeculationMode.OFF), 0),
        (_sequence(max_window=3), 3),
        (_sequence(max_window=0), 0),
        (_sequence(max_window=50), 7),
        (_sequence(max_tokens=10, num_output=5), 4),
        (_sequence(max_tokens=10, num_output=9), 0),
        (_sequence(max_tokens=10, num_output=10), 0),
        (_sequence(max_tokens=100), 7),
    ],
)
def test_a_window_is_what_the_request_allows_and_can_use(sequence, window):
    assert _plan(sequence).window == window
    assert _plan(sequence, Draft.chain([1] * 7, "ngram")).window == window


@pytest.mark.parametrize(
    ("wanted", "available", "granted"),
    [
        ([7, 7, 7], 21, [7, 7, 7]),
        ([7, 7, 7], 9, [3, 3, 3]),
        ([7, 1, 7], 9, [4, 1, 4]),
        ([2, 0, 7, 3], 8, [2, 0, 3, 3]),
        ([7, 7], 1, [0, 1]),
        ([7, 7], 0, [0, 0]),
        ([7], -3, [0]),
        ([], 5, []),
    ],
)
def test_short_rows_are_levelled(wanted, available, granted):
    assert level(wanted, available) == granted


def test_spare_rows_bound_the_sum_of_windows():
    sequences = [_sequence(), _sequence(max_window=1), _sequence()]
    plans = FixedController(7, "draft-model").plan(
        sequences, [Offer(16, (), {"draft-model": 0})] * 3, StepRoom(3, 0, 6)
    )
    assert [plan.window for plan in plans] == [2, 1, 3]


def test_a_model_without_room_for_the_text_is_not_asked():
    models = ("draft-model", "shared-layers")
    assert _plan(_sequence(), model_drafters=models, with_room=("shared-layers",)) == Plan("shared-layers", 7)
    assert _plan(_sequence(), model_drafters=models, with_room=()) == Plan("none", 0, reason="no draft")


def test_a_plan_that_is_left_without_rows_says_so():
    assert _plan(_sequence(), spare_rows=0) == Plan("draft-model", 0, reason="no room")
    assert _plan(_sequence(), Draft.chain([1, 2], "ngram"), spare_rows=0) == Plan("ngram", 0, reason="no room")
    assert _plan(_sequence(), spare_rows=2) == Plan("draft-model", 2)


def test_a_tree_is_cut_to_its_first_nodes():
    assert cut(TREE, 4) is TREE
    assert cut(TREE, 9) is TREE
    assert cut(TREE, 3) == Draft((5, 6, 7), (None, 0, None), (0.9, 0.8, 0.7), "tree")
    assert cut(TREE, 0) == Draft()


def test_a_tree_knows_depths_and_children():
    assert depths(TREE) == [0, 1, 0, 2]
    assert depths(Draft()) == []
    assert child_by_token(TREE) == {(None, 5): 0, (0, 6): 1, (None, 7): 2, (1, 8): 3}


def test_acceptance_is_counted_in_total_by_depth_by_size_and_by_drafter():
    stats = AcceptanceStats()
    assert stats.total.acceptance_rate is None
    for drafter, num_drafted, num_accepted in [("ngram", 4, 2), ("ngram", 3, 0), ("draft-model", 5, 3), ("none", 0, 0)]:
        stats.record(drafter, num_drafted, num_accepted, num_accepted + 1)
    total = stats.total
    assert (total.num_drafts, total.num_draft_tokens, total.num_accepted_tokens) == (3, 12, 5)
    assert total.accepted_per_position == [2, 2, 1]
    assert total.acceptance_rate == pytest.approx(5 / 12)
    assert (stats.num_verdicts, stats.num_committed, stats.num_per_size) == (4, 9, [1, 0, 0, 1, 1, 1])
    ngram = stats.by_drafter["ngram"].snapshot(0.5)
    assert (ngram.num_drafts, ngram.num_draft_tokens, ngram.num_accepted_tokens) == (2, 7, 2)
    assert (ngram.num_accepted_per_position, ngram.drafting_s) == ((1, 1), 0.5)
    assert set(stats.by_drafter) == {"ngram", "draft-model"}
