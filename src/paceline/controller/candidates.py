"""What the controller has learnt about drafters and sequences, and the candidates for the planner made from it.

It learns from every draft, whether the target was shown it or not. Nothing here decides.
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
_FIRST_GUESS = 0.75  # acceptance of a drafter before its first draft
_FIRST_REACH = 3  # nodes of a first draft (decision 022)
_MODEL_SLOPE = 1.5  # a model's confidence understates how often it is right (decisions 016, 024)


_drafter_ratio = partial(DecayedRatio, DRAFTER_MEMORY)


@dataclass(slots=True)
class DrafterHistory:
    """What is known of one drafter over all sequences.

    `advance[d]` is the rate at which it drafts a token at depth d that is right, if all before were right.
    `continuation` is the rate at which a token that it drafts there is right. `reads_ahead` says that its model checks
    the guesses of free drafters in the passes that it makes anyway, and `passes` compares the passes that it makes
    with those expected. `acceptance` compares accepted with drafted tokens.
    """

    confidence: ConfidenceModel = field(default_factory=ConfidenceModel)
    advance: defaultdict[int, DecayedRatio] = field(default_factory=lambda: defaultdict(_drafter_ratio))
    continuation: DecayedRatio = field(default_factory=_drafter_ratio)
    acceptance: DecayedRatio = field(default_factory=DecayedRatio)
    passes: DecayedRatio = field(default_factory=DecayedRatio)
    reads_ahead: bool = False


@dataclass(slots=True)
class OwnHistory:
    """What is known of one drafter on one sequence; `usual` is what is known of it over all sequences.

    `reach` is the most nodes that a draft may have: the first draft is short, and each success allows longer ones.
    `net_s` is the time that drafts saved minus what they cost. `unrepaid_prefill_s` is the time spent on reading the
    text since a draft was last accepted. `missed` are the tokens that the drafter would have brought in each step
    beyond the best free draft if it had read the text, and `num_missed` is their sum. `is_started` says that the
    drafter was found worth reading the text, and `is_probing` that its next draft is a probe.
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
        """Returns a draft that exists as a candidate: at most as many nodes as there are floors, up to the first one
        that is less likely than its floor to be accepted."""
        survivals = calibrated_survivals(cut(draft, len(floors)), self.calibration)
        lowest = zip(accumulate(survivals, min), floors, strict=False)
        kept = takewhile(lambda node: node[0] >= max(_LEAST_SURVIVAL, node[1]), lowest)
        return Candidate(draft.drafter, [survival for survival, _ in kept])

    def expectation(self, num_depths: int) -> Expectation:
        """Returns what to expect of a draft that is still to be made."""
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
        """Learns from a draft that was made for a plan of `window` nodes. A draft that ended earlier, even an empty
        one, is evidence of where the drafter stops; a window that was filled is none."""
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
    """Returns the histories of drafters that have not drafted yet. Those in `model_drafters` run a model."""
    return defaultdict(DrafterHistory, {name: DrafterHistory(ConfidenceModel(_MODEL_SLOPE)) for name in model_drafters})


@dataclass(slots=True)
class SequenceHistory:
    """One sequence: its drafters by name, and what probes may cost in its own time."""

    portfolio: Portfolio
    drafters: dict[str, OwnHistory] = field(default_factory=dict)
    budget: ProbeBudget = field(default_factory=ProbeBudget)

    def of(self, drafter: str) -> OwnHistory:
        """Returns the drafter's history on this sequence, a new one if it has none."""
        own = self.drafters.get(drafter)
        if own is None:
            own = self.drafters[drafter] = OwnHistory(self.portfolio[drafter])
        return own

    def pass_likelihoods(self, drafter: str, free_drafts: Sequence[Draft], num_depths: int) -> list[float]:
        """Returns for each depth of a model's draft the probability that it takes a pass of its own. A model that reads
        ahead needs none after tokens that the best free chain guessed right."""
        chains = [draft for draft in free_drafts if self.of(drafter).usual.reads_ahead]
        guesses = [
            calibrated_survivals(cut(one, chain_length(one)), self.of(one.drafter).calibration) for one in chains
        ]
        likelihoods = [1.0, *(1.0 - guess for guess in max(guesses, key=sum, default=[]))][:num_depths]
        return likelihoods + [1.0] * (num_depths - len(likelihoods))


@dataclass(frozen=True, slots=True)
class Expectation:
    """What to expect of a draft that is still to be made: `accepted[d]` is the probability that its node at depth d is
    drafted and accepted, `continuation` that a further node would be accepted if it was drafted.

    The first is more than a product of two rates, because drafters go on where they are sure.
    """

    accepted: tuple[float, ...]
    continuation: float

    @property
    def drafted(self) -> tuple[float, ...]:
        """For each depth the probability that the draft gets there: that all before it is accepted."""
        return (1.0, *self.accepted[:-1])


def never_rising(values: Sequence[float]) -> list[float]:
    """Returns the sequence with the same sum that never rises and is nearest in squares: runs that rise are replaced by
    their mean."""
    runs: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while runs and runs[-1][0] / runs[-1][1] < total / count:
            other_total, other_count = runs.pop()
            total, count = total + other_total, count + other_count
        runs.append((total, count))
    return [total / count for total, count in runs for _ in range(count)]
