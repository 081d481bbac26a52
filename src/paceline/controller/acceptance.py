"""How likely drafts are to be accepted, learnt from what the target committed.

`ConfidenceModel` is used for drafts that exist before the plan, and `DecayedRatio` for drafts that do not exist yet.
Only nodes that the target decided on are evidence. Nodes after a rejected one were never judged. If a whole draft was
accepted, nothing is known about the tokens that would have come after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.core import Calibration, Draft
from paceline.core.draft import log_odds, probability_of
from paceline.core.draft_tree import survivals

RECENT_MEMORY = 0.96  # in means of recent steps, a step's weight over that of the next one (decision 022)
DRAFTER_MEMORY = 0.995  # the same in a drafter's rates over all sequences
_PRIOR_WEIGHT = 4.0  # a prior counts as much as this many entries
_SEQUENCE_STEP = 0.025  # learning rate of a sequence's bias
_LEAST_STEP = 0.0025  # learning rate of a drafter's calibration after many judgements
_FIRST_WEIGHT = 13.0  # the initial calibration counts as much as this many judgements
_SLOPE_SHARE = 0.1  # the learning rate of the slope, divided by that of the bias
_LEAST_VARIANCE = 0.06  # limits the step if nearly all or nearly no nodes are accepted


@dataclass(frozen=True, slots=True)
class Judgement:
    """One draft node that the target has decided on. It is accepted if the target committed its token."""

    depth: int
    confidence: float
    is_accepted: bool


def judge(draft: Draft, committed: Sequence[int]) -> list[Judgement]:
    """Returns a judgement for each node of the draft that the committed tokens accept or reject.

    `committed` are the tokens after the draft's root. Siblings of an accepted node are judged too. The target need not
    have checked the draft.
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
    """A drafter's calibration over all sequences. Each sequence adds a bias of its own to it.

    It is a logistic regression on the log-odds of the drafter's confidence, and it takes one step for each judgement.
    Steps become smaller with the number of judgements. As in Newton's method, they are larger if nearly all or nearly
    no nodes are accepted, because the gradient alone would then need hundreds of nodes.
    """

    slope: float = 1.0
    bias: float = 0.0
    num_learnt: int = 0

    def calibration(self, own_bias: float) -> Calibration:
        """Returns the calibration for a sequence with this bias."""
        return Calibration(self.slope, self.bias + own_bias)

    def learn(self, judgement: Judgement, own_bias: float) -> float:
        """Learns from one judgement on a sequence with this bias, and returns the sequence's new bias."""
        odds = log_odds(judgement.confidence)
        probability = probability_of(self.slope * odds + self.bias + own_bias)
        error = (judgement.is_accepted - probability) / max(_LEAST_VARIANCE, probability * (1.0 - probability))
        step = max(_LEAST_STEP, 1.0 / (_FIRST_WEIGHT + self.num_learnt))
        self.num_learnt += 1
        self.bias += step * error
        self.slope += _SLOPE_SHARE * step * error * odds
        return own_bias + _SEQUENCE_STEP * error


def calibrated_survivals(draft: Draft, calibration: Calibration) -> list[float]:
    """Returns for each node the probability that the target accepts it and all its ancestors."""
    known = {confidence: calibration.probability(confidence) for confidence in set(draft.confidences)}
    return survivals(draft, (known[confidence] for confidence in draft.confidences))


@dataclass(slots=True)
class DecayedRatio:
    """A ratio of two sums, for example accepted to drafted tokens. Older entries have less weight in both sums."""

    memory: float = RECENT_MEMORY
    above: float = 0.0
    below: float = 0.0

    def record(self, above: float, below: float = 1.0) -> None:
        """Adds one entry to both sums."""
        self.above = self.above * self.memory + above
        self.below = self.below * self.memory + below

    def estimate(self, prior: float) -> float:
        """Returns the ratio. `prior` counts as much as four entries, so the first entries change it little."""
        return (self.above + _PRIOR_WEIGHT * prior) / (self.below + _PRIOR_WEIGHT)
