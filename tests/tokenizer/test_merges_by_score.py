"""Tests the merges of a SentencePiece vocabulary: their order, and tokens that are too long to search for halves."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.tokenizer.conversion import merges_by_score


def test_the_best_score_comes_first_and_then_the_lower_id() -> None:
    tokens = ["a", "b", "ab", "aba", "ba"]
    scores = np.array([0, 0, -2, -1, -2], np.float32)
    assert merges_by_score(tokens, scores).tolist() == [[0, 4], [2, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize(("size", "is_built"), [(512, True), (513, False), (10**6, False)])
def test_a_token_of_extreme_length_is_not_built(size: int, is_built: bool) -> None:
    tokens = ["a", "b", "ab", "x" * size, "x" * 2 * size]
    merges = merges_by_score(tokens, np.zeros(len(tokens), np.float32)).tolist()
    assert merges == [[0, 1], *([[3, 3]] if is_built else [])]
