"""`Guess`: a chain in the making, and `draw`, which adds a token to each of many; for drafters that run a model.

They draw by the target's rule with the target's noise, so a guess is right whenever the perturbed scores of both models
have the same winner. Nothing here knows whose logits they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as List
from dataclasses import dataclass, field
from typing import TypeVar

from paceline.core import Draft, Float32Array, Plan, Sequence
from paceline.models import ThreadPool
from paceline.models.sampling import RowSampler, sample_rows


@dataclass(slots=True, kw_only=True)
class Guess:
    """A draft in the making, of at most `window` tokens. `sampler` is the target's."""

    sequence: Sequence
    sampler: RowSampler
    window: int
    plan: Plan
    token_ids: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    survival: float = 1.0

    def push(self, token_id: int, confidence: float) -> bool:
        """Takes one more token unless the plan ends the draft before it; returns whether another is to follow."""
        self.survival *= self.plan.probability(confidence)
        if self.survival < self.plan.stop_below:
            return False
        self.token_ids.append(token_id)
        self.confidences.append(confidence)
        num_nodes = len(self.token_ids)
        return num_nodes < self.window and self.plan.is_worth_deepening(num_nodes, self.survival)

    def draft(self, drafter: str) -> Draft:
        """What was guessed."""
        return Draft.chain(self.token_ids, drafter, self.confidences) if self.token_ids else Draft()


AnyGuess = TypeVar("AnyGuess", bound=Guess)


def draw(
    guesses: List[AnyGuess],
    logits: Float32Array,
    *,
    threads: ThreadPool | None,
    is_known: Callable[[int], bool] = lambda token_id: True,
) -> list[AnyGuess]:
    """Adds one token to each guess, from its row of `logits`, unless that token is not known to the target; returns the
    guesses that go on."""
    sampled = sample_rows(
        logits,
        list(range(len(guesses))),
        [guess.sampler for guess in guesses],
        [len(guess.sequence.token_ids) + len(guess.token_ids) for guess in guesses],
        [guess.token_ids for guess in guesses],
        num_logprobs=[0] * len(guesses),
        threads=threads,
    )
    return [
        guess
        for guess, token_id, entry in zip(guesses, sampled.token_ids, sampled.logprobs, strict=True)
        if token_id is not None
        and is_known(token_id)
        and guess.push(token_id, math.exp(entry.logprob) if entry else 1.0)
    ]
