"""Draws a draft model's tokens by the target's rule with the target's noise, and second choices where wanted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from paceline.core import Float32Array
from paceline.models import ThreadPool
from paceline.models.sampling import RowSampler, SampledRows, sample_rows
from paceline.speculation.growing_draft import Guess

Wish = Callable[[float], bool]


def draw(
    logits: Float32Array,
    samplers: Sequence[RowSampler],
    positions: Sequence[int],
    extra_token_ids: Sequence[list[int]],
    wishes: Sequence[Wish],
    threads: ThreadPool | None,
) -> list[Guess | None]:
    """One guess for each row; None where the row has no token left.

    A confidence is the raw distribution's. The second choice is the best perturbed score but one, which is what the
    target would draw if its first choice were another; it is sought where the row's wish, asked with the first choice's
    confidence, says so. Overwrites some logits.
    """

    def sample(rows: list[int]) -> SampledRows:
        return sample_rows(
            logits,
            rows,
            [samplers[row] for row in rows],
            [positions[row] for row in rows],
            [extra_token_ids[row] for row in rows],
            num_logprobs=[0] * len(rows),
            threads=threads,
        )

    guesses = _guesses(sample(list(range(len(samplers)))))
    wanted = {row: guess for row, guess in enumerate(guesses) if guess is not None and wishes[row](guess.confidence)}
    for row, first in wanted.items():
        logits[row, first.token_id] = -np.inf
    seconds = _guesses(sample(list(wanted))) if wanted else []
    for (row, first), second in zip(wanted.items(), seconds, strict=True):
        if second is not None:
            share = second.confidence * max(0.0, 1.0 - first.confidence)
            guesses[row] = replace(first, second=Guess(second.token_id, share))
    return guesses


def _guesses(sampled: SampledRows) -> list[Guess | None]:
    return [
        None if token_id is None else Guess(token_id, math.exp(entry.logprob) if entry else 1.0)
        for token_id, entry in zip(sampled.token_ids, sampled.logprobs, strict=True)
    ]
