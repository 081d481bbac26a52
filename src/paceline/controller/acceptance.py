"""How likely drafts are to be accepted, learnt from what the target committed: `ConfidenceModel` for drafters whose
drafts exist before the plan, `Rate` for those whose drafts are still to be made.

All evidence is censored: what follows a rejected node was never judged, and a draft that was accepted whole, or ended
by its window, says nothing about what would have come after it. Such nodes are no evidence, neither for nor against.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.core import Calibration, Draft
from paceline.core.draft import log_odds, probability_of
from paceline.core.draft_tree import chain_length, survivals

MAX_DEPTH = 16
_SEQUENCE_RATE = 0.1
_DRAFTER_RATE = 0.3
_LEAST_DRAFTER_RATE = 0.01
_SLOPE_SHARE = 0.1
_LEAST_VARIANCE = 0.06
_EVEN_VARIANCE = 0.25
_SEQUENCE_MEMORY = 0.93
_DRAFTER_MEMORY = 0.995
_PRIOR_WEIGHT = 4.0  # cases that the prior of a rate counts as


@dataclass(frozen=True, slots=True)
class Judgement:
    """One node that the target has decided on: it is `is_accepted` where the target committed its token."""

    depth: int
    confidence: float
    is_accepted: bool


def judge(draft: Draft, committed: Sequence[int]) -> list[Judgement]:
    """The nodes of a draft that the committed tokens decide on, whether or not the target was shown the draft.

    `committed` are the tokens after the draft's root. Siblings of an accepted node are judged too.
    """
    judgements: list[Judgement] = []
    parent: int | None = None
    for depth, token_id in enumerate(committed):
        accepted: int | None = None
        for node in draft.children_of(parent):
            is_accepted = accepted is None and draft.token_ids[node] == token_id
            accepted = node if is_accepted else accepted
            judgements.append(Judgement(depth, draft.confidences[node], is_accepted))
        if accepted is None:
            break
        parent = accepted
    return judgements


@dataclass(slots=True)
class ConfidenceModel:
    """A drafter's calibration over all sequences: logistic regression on the log-odds of its confidence, one step
    for each judgement, of a size that shrinks. Each sequence adds a bias of its own. Steps are larger where nearly all
    or nearly no nodes are accepted (as Newton's are), since there the gradient alone takes hundreds of nodes."""

    slope: float = 1.0
    bias: float = 0.0
    num_learnt: int = 0

    def calibration(self, own: SequenceBias) -> Calibration:
        """For one sequence."""
        return Calibration(self.slope, self.bias + own.bias)

    def learn(self, judgement: Judgement, own: SequenceBias) -> None:
        """Takes in one judgement of one sequence; changes both."""
        odds = log_odds(judgement.confidence)
        probability = probability_of(self.slope * odds + self.bias + own.bias)
        variance = max(_LEAST_VARIANCE, probability * (1.0 - probability))
        error = (judgement.is_accepted - probability) * _EVEN_VARIANCE / variance
        rate = max(_LEAST_DRAFTER_RATE, _DRAFTER_RATE / (1.0 + 0.1 * self.num_learnt))
        self.num_learnt += 1
        self.bias += rate * error
        self.slope += _SLOPE_SHARE * rate * error * odds
        own.learn(error)


@dataclass(slots=True)
class SequenceBias:
    """How much better or worse than usual a drafter does on one sequence, in log-odds."""

    bias: float = 0.0

    def learn(self, error: float) -> None:
        """Follows one error of the whole prediction."""
        self.bias += _SEQUENCE_RATE * error


def calibrated_survivals(draft: Draft, calibration: Calibration) -> list[float]:
    """For each node the probability that it is accepted, with what the drafter's confidence is worth."""
    known = {confidence: calibration.probability(confidence) for confidence in set(draft.confidences)}
    return survivals(draft, (known[confidence] for confidence in draft.confidences))


class Rate:
    """A decayed frequency: of `num_tried` cases `num_true` were true."""

    __slots__ = ("_memory", "num_tried", "num_true")

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self.num_true = 0.0
        self.num_tried = 0.0

    @classmethod
    def of_drafter(cls) -> Rate:
        """Returns a rate over all sequences, which changes slowly."""
        return cls(_DRAFTER_MEMORY)

    @classmethod
    def of_sequence(cls) -> Rate:
        """Returns a rate that forgets as fast as a text changes."""
        return cls(_SEQUENCE_MEMORY)

    def record(self, is_true: bool) -> None:
        """Adds one case; older ones lose weight."""
        self.num_true = self.num_true * self._memory + is_true
        self.num_tried = self.num_tried * self._memory + 1.0

    def estimate(self, prior: float) -> float:
        """Returns the rate; `prior` stands in for cases that are missing."""
        return (self.num_true + _PRIOR_WEIGHT * prior) / (self.num_tried + _PRIOR_WEIGHT)


@dataclass(frozen=True, slots=True)
class ChainNode:
    """One depth of a drafted chain on which the target has decided. Where it `is_drafted` and not accepted the target
    took another token; where it is not drafted the drafter stopped by itself."""

    depth: int
    is_drafted: bool
    is_accepted: bool


def judge_chain(draft: Draft, window: int, committed: Sequence[int]) -> Iterator[ChainNode]:
    """Returns the depths of a draft, whose chain could have had `window` nodes, that the committed tokens decide on."""
    length = chain_length(draft)
    for depth in range(min(window, length + 1, len(committed), MAX_DEPTH)):
        is_accepted = depth < length and draft.token_ids[depth] == committed[depth]
        yield ChainNode(depth, depth < length, is_accepted)
        if not is_accepted:
            return
