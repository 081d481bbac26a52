"""What the controller has learnt about drafters and sequences, and the planner's candidates that follow from it.

It learns from every draft, even if the target did not check it. Nothing here decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, takewhile
from operator import mul

from paceline.controller.acceptance import DRAFTER_MEMORY, ConfidenceModel, DecayedRatio, calibrated_survivals, judge
from paceline.controller.planner import Candidate
from paceline.controller.probing import Guard, ProbeBudget, RetryBackoff
from paceline.core import Calibration, Draft
from paceline.core.draft_tree import chain_length, cut

_LEAST_SURVIVAL = 0.04  # nodes less likely than this are not planned, however cheap rows are
_FIRST_GUESS = 0.75  # a drafter's acceptance rate at each depth, assumed before its first draft
_FIRST_REACH = 3  # the most nodes of a first draft (decision 022)
_MODEL_SLOPE = 1.5  # a model's confidence understates how often it is right (decisions 016, 024)


_drafter_ratio = partial(DecayedRatio, DRAFTER_MEMORY)


@dataclass(slots=True)
class DrafterHistory:
    """What is known about one drafter over all sequences.

    The first two rates are for the case that all tokens before are right. `advance[d]` is the rate at which the drafter
    then drafts a token at depth d and it is right. `continuation` is the rate at which a token that it drafts is right.
    `reads_ahead` says that its model also reads guesses of the suffix tree in its passes. `passes` is the number of its
    passes divided by the expected number. `acceptance` is the number of accepted tokens divided by the drafted ones.
    """

    confidence: ConfidenceModel = field(default_factory=ConfidenceModel)
    advance: defaultdict[int, DecayedRatio] = field(default_factory=lambda: defaultdict(_drafter_ratio))
    continuation: DecayedRatio = field(default_factory=_drafter_ratio)
    acceptance: DecayedRatio = field(default_factory=DecayedRatio)
    passes: DecayedRatio = field(default_factory=DecayedRatio)
    reads_ahead: bool = False


@dataclass(slots=True)
class OwnHistory:
    """What is known about one drafter on one sequence. `usual` is what is known about it over all sequences.

    `reach` is the most nodes that a draft may have. The first draft is short, and accepted tokens allow longer ones.
    `net_s` is the time that drafts saved minus the time that they cost. `unrepaid_prefill_s` is the time of prefills
    since a draft last had an accepted token. For each step before the prefill, `missed` records the tokens that the
    drafter would have saved beyond the best free draft, and `num_missed` is their sum. `is_started` says that the
    controller has decided to let the drafter read the text. `is_probing` says that its next draft is a probe.
    """

    usual: DrafterHistory
    bias: float = 0.0
    advance: defaultdict[int, DecayedRatio] = field(default_factory=lambda: defaultdict(DecayedRatio))
    guard: Guard = field(default_factory=Guard)
    retry: RetryBackoff = field(default_factory=RetryBackoff)
    reach: int = _FIRST_REACH
    net_s: float = 0.0
    unrepaid_prefill_s: float = 0.0
    missed: DecayedRatio = field(default_factory=DecayedRatio)
    num_missed: float = 0.0
    is_started: bool = False
    is_probing: bool = False

    @property
    def calibration(self) -> Calibration:
        """The drafter's calibration on this sequence."""
        return self.usual.confidence.calibration(self.bias)

    def free_candidate(self, draft: Draft, floors: Sequence[float]) -> Candidate:
        """Returns the candidate for a draft that exists. It has at most `len(floors)` nodes, and it ends before the
        first node whose survival is below its floor."""
        survivals = calibrated_survivals(cut(draft, len(floors)), self.calibration)
        lowest = zip(accumulate(survivals, min), floors, strict=False)
        kept = takewhile(lambda node: node[0] >= max(_LEAST_SURVIVAL, node[1]), lowest)
        return Candidate(draft.drafter, [survival for survival, _ in kept])

    def expectation(self, num_depths: int) -> Expectation:
        """Returns what to expect of a draft that does not exist yet."""
        usual = self.usual
        rates = (
            self.advance[depth].estimate(usual.advance[depth].estimate(_FIRST_GUESS)) for depth in range(num_depths)
        )
        return Expectation(tuple(accumulate(rates, mul)), usual.continuation.estimate(_FIRST_GUESS))

    def learn_free(self, draft: Draft, committed: Sequence[int]) -> None:
        """Learns from a draft that existed before the plan."""
        judgements = judge(draft, committed)
        for judgement in judgements:
            self.bias = self.usual.confidence.learn(judgement, self.bias)
        if num_accepted := sum(judgement.is_accepted for judgement in judgements):
            self.reach = max(self.reach, _FIRST_REACH + 2 * num_accepted)

    def learn_made(self, draft: Draft, window: int, committed: Sequence[int]) -> None:
        """Learns from a draft that was made for a plan of `window` nodes. A draft that is shorter than its window, even
        an empty one, shows where the drafter stops. A draft that fills its window does not."""
        self.learn_free(draft, committed)
        length = chain_length(draft)
        pairs = zip(draft.token_ids[:length], committed, strict=False)
        num_right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        for depth in range(min(num_right + 1, window, len(committed))):
            self.advance[depth].record(depth < num_right)
            self.usual.advance[depth].record(depth < num_right)
            if depth < length:
                self.usual.continuation.record(depth < num_right)


Portfolio = defaultdict[str, DrafterHistory]
"""The histories of all drafters, by name."""


def new_portfolio(model_drafters: Iterable[str] = ()) -> Portfolio:
    """Returns histories of drafters that have not drafted yet. The drafters in `model_drafters` run a model."""
    return defaultdict(DrafterHistory, {name: DrafterHistory(ConfidenceModel(_MODEL_SLOPE)) for name in model_drafters})


@dataclass(slots=True)
class SequenceHistory:
    """What is known about one sequence: the histories of the drafters by name, and the time that probes may cost."""

    portfolio: Portfolio
    drafters: dict[str, OwnHistory] = field(default_factory=dict)
    budget: ProbeBudget = field(default_factory=ProbeBudget)

    def of(self, drafter: str) -> OwnHistory:
        """Returns the drafter's history on this sequence. If there is none, it makes one."""
        own = self.drafters.get(drafter)
        if own is None:
            own = self.drafters[drafter] = OwnHistory(self.portfolio[drafter])
        return own

    def pass_likelihoods(self, drafter: str, free_drafts: Sequence[Draft], num_depths: int) -> list[float]:
        """Returns for each depth of a model's draft the probability that it needs a pass of its own. A model that reads
        ahead needs no further pass after a token that the best free chain has guessed right."""
        chains = [draft for draft in free_drafts if self.of(drafter).usual.reads_ahead]
        guesses = [
            calibrated_survivals(cut(one, chain_length(one)), self.of(one.drafter).calibration) for one in chains
        ]
        likelihoods = [1.0, *(1.0 - guess for guess in max(guesses, key=sum, default=[]))][:num_depths]
        return likelihoods + [1.0] * (num_depths - len(likelihoods))


@dataclass(frozen=True, slots=True)
class Expectation:
    """What to expect of a draft that does not exist yet. `accepted[d]` is the probability that its node at depth d is
    drafted and accepted. `continuation` is the probability that one more node is accepted if it is drafted.

    `accepted` is not computed from separate rates of drafting and acceptance, because drafters go on when they are
    sure. The product of the two rates would be too low.
    """

    accepted: tuple[float, ...]
    continuation: float

    @property
    def drafted(self) -> tuple[float, ...]:
        """The probability that the draft reaches each depth: here, that all nodes before it are accepted."""
        return (1.0, *self.accepted[:-1])


def never_rising(values: Sequence[float]) -> list[float]:
    """Returns the sequence that never rises, has the same sum as `values`, and is closest to them in squared distance.
    It replaces each rising run by its mean (isotonic regression)."""
    runs: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while runs and runs[-1][0] / runs[-1][1] < total / count:
            other_total, other_count = runs.pop()
            total, count = total + other_total, count + other_count
        runs.append((total, count))
    return [total / count for total, count in runs for _ in range(count)]
