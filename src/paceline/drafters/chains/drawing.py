"""Draws the tokens of drafters that run a model, by the target's rule with the target's noise, and second choices.

So a guess is right whenever the perturbed scores of both models have the same winner. Nothing here knows whose logits
they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as List
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

import numpy as np

from paceline.backends.native.model import ThreadPool
from paceline.backends.native.sampler import RowSampler, SampledRows, sample_rows
from paceline.core import Float32Array, Sequence
from paceline.drafters.chains.growing_draft import GrowingDraft, Guess

Wish = Callable[[float], bool]


@dataclass(slots=True, kw_only=True)
class Drawing:
    """A draft that is being drawn for a sequence. `sampler` is the target's; `known` are the tokens that the current
    pass reads ahead behind the draft's last one."""

    sequence: Sequence
    sampler: RowSampler
    draft: GrowingDraft
    known: list[int] = field(default_factory=list)


AnyDrawing = TypeVar("AnyDrawing", bound=Drawing)


def draw(
    drawings: List[AnyDrawing],
    logits: Float32Array,
    *,
    threads: ThreadPool | None,
    is_known: Callable[[int], bool] = lambda token_id: True,
) -> list[AnyDrawing]:
    """Adds nodes to each draft, from its rows of `logits` (one, and one for each token read ahead), as far as the
    target knows the tokens; returns those whose drafts go on."""
    rows = [(drawing, number) for drawing in drawings for number in range(1 + len(drawing.known))]
    drawn = [[*drawing.draft.token_ids, *drawing.known[:number]] for drawing, number in rows]
    guesses = guess_rows(
        logits,
        [drawing.sampler for drawing, _ in rows],
        [len(drawing.sequence.token_ids) + len(before) for (drawing, _), before in zip(rows, drawn, strict=True)],
        drawn,
        [drawing.draft.may_branch for drawing, _ in rows],
        threads,
    )
    pending = (_of_target(guess, is_known) for guess in guesses)
    return [
        drawing
        for drawing in drawings
        if drawing.draft.push_all(list(islice(pending, 1 + len(drawing.known))), drawing.known)
    ]


def _of_target(guess: Guess | None, is_known: Callable[[int], bool]) -> Guess | None:
    if guess is None or not is_known(guess.token_id):
        return None
    if guess.second is not None and not is_known(guess.second.token_id):
        return replace(guess, second=None)
    return guess


def guess_rows(
    logits: Float32Array,
    samplers: List[RowSampler],
    positions: List[int],
    extra_token_ids: List[list[int]],
    wishes: List[Wish],
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
