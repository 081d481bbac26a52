"""Tests the acceptance rule with all chains and trees over four tokens up to depth three, on targets that are tables.

For every draft, the committed tokens must be the beginning of the text of plain decoding, and as long as the draft
allows.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from paceline.backends.native.sampler import NativeSampler
from paceline.core import Draft, SamplingParams
from paceline.engine.verifier import Verifier, prepare_checks
from tests.support.tables import (
    DEPTH,
    GREEDY,
    PENALIZED,
    SAMPLED,
    VOCAB_SIZE,
    all_chains,
    all_trees,
    draft_rows,
    greedy_table,
    make_sampler,
    make_sequence,
    plain_text,
    random_table,
    random_trees,
)

TREES = [tree for num_nodes in (1, 2, 3, 4) for tree in all_trees(num_nodes)]


def _histories(draft: Draft) -> set[tuple[int, ...]]:
    return {tuple(draft.token_ids[node] for node in draft.path_to(end)) for end in range(len(draft))}


def _check(drafts: list[Draft], table: np.ndarray, params: SamplingParams, seed: int) -> int:
    """Verifies all drafts in one batch; returns how many tokens were accepted."""
    text = plain_text(table, params, seed)
    sequence = make_sequence(params, seed)
    sampler = make_sampler(sequence)
    rows = [draft_rows(table, draft) for draft in drafts]
    first_rows = np.cumsum([0, *(len(block) for block in rows[:-1])]).tolist()
    count = len(drafts)
    checks = prepare_checks([sequence] * count, drafts, [sampler] * count, VOCAB_SIZE)
    verdicts = Verifier(NativeSampler()).verify(checks, np.concatenate(rows), first_rows)
    num_accepted = 0
    for draft, verdict in zip(drafts, verdicts, strict=True):
        histories = _histories(draft)
        possible = max(length for length in range(DEPTH + 1) if length == 0 or text[:length] in histories)
        assert verdict.committed == text[: possible + 1]
        assert tuple(draft.token_ids[node] for node in verdict.path) == verdict.token_ids == text[:possible]
        assert verdict.num_drafted == len(draft)
        num_accepted += possible
    return num_accepted


def test_the_enumeration_is_complete():
    assert len(all_chains()) == 85
    # The number of trees of n nodes, each with up to 4 children, is a Fuss-Catalan number. For n = 4, 256 of them are
    # chains deeper than DEPTH.
    assert len(TREES) == 4 + 22 + 140 + (969 - 4**4)
    assert len(set(TREES)) == len(TREES)


@pytest.mark.parametrize("first", range(VOCAB_SIZE))
def test_every_chain_and_tree_against_every_greedy_text(first):
    accepted = 0
    for rest in product(range(VOCAB_SIZE), repeat=DEPTH):
        text = (first, *rest)
        assert plain_text(greedy_table(text), GREEDY, seed=0) == text
        accepted += _check(all_chains() + TREES, greedy_table(text), GREEDY, seed=0)
    assert accepted > 0


@pytest.mark.parametrize("params", [GREEDY, SAMPLED, PENALIZED], ids=["greedy", "sampled", "penalized"])
def test_every_chain_and_tree_against_random_tables(params):
    texts = set()
    for seed in range(40):
        table = random_table(seed)
        _check(all_chains() + TREES, table, params, seed)
        texts.add(plain_text(table, params, seed))
    assert len(texts) > 20


@pytest.mark.parametrize("params", [GREEDY, SAMPLED, PENALIZED], ids=["greedy", "sampled", "penalized"])
def test_larger_trees_in_any_node_order(params):
    for seed in range(30):
        assert _check(list(random_trees(seed, 40, max_nodes=16)), random_table(100 + seed), params, seed) > 0


def test_a_draft_never_changes_how_often_a_text_comes():
    """Over many seeds, the first token after any draft has the distribution of plain decoding, as it is the same."""
    table = random_table(7)
    drafts = [Draft(), Draft.chain([1, 2, 3], "chain"), next(random_trees(3, 1, 12))]
    for seed in range(200):
        _check(drafts, table, SAMPLED, seed)
    firsts = [plain_text(table, SAMPLED, seed)[0] for seed in range(200)]
    assert len(set(firsts)) == VOCAB_SIZE
