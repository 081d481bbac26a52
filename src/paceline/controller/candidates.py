"""What the controller has learnt about drafters and sequences, and the candidates for the planner made from it.

`Portfolio` learns from every draft, whether the target was shown it or not. Nothing here decides.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from operator import mul

from paceline.controller.acceptance import (
    MAX_DEPTH,
    ConfidenceModel,
    Rate,
    SequenceBias,
    calibrated_survivals,
    judge,
    judge_chain,
)
from paceline.controller.planner import Candidate
from paceline.controller.probing import Guard, ProbeBudget, RetryBackoff
from paceline.controller.recent_speedup import RECENT_MEMORY
from paceline.core import Calibration, Draft
from paceline.core.draft_tree import chain_length, cut

LEAST_SURVIVAL = 0.04  # nodes less likely than this are not planned
_FIRST_GUESS = 0.75  # acceptance of a drafter that nobody has seen
_FIRST_REACH = 3
_MODEL_CALIBRATION = (1.5, 0.2)  # slope and bias, fitted to recorded texts (decision 016)


@dataclass(slots=True)
class DrafterHistory:
    """What is known of one drafter over all sequences.

    `advance` are the rates by depth at which it goes on and is right, `continuation` the rate at which a node that it
    drafts below accepted ones is accepted. `reads_ahead` says that its model checks the guesses of free drafters in the
    passes that it makes anyway; `pass_share` is the number of passes it makes for each one expected.
    """

    confidence: ConfidenceModel = field(default_factory=ConfidenceModel)
    advance: list[Rate] = field(default_factory=lambda: [Rate.of_drafter() for _ in range(MAX_DEPTH)])
    continuation: Rate = field(default_factory=Rate.of_drafter)
    num_drafted: float = 0.0
    num_accepted: float = 0.0
    reads_ahead: bool = False
    pass_share: float = 1.0

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted tokens per drafted one in recent drafts; None before the first."""
        return self.num_accepted / self.num_drafted if self.num_drafted else None

    def count(self, num_drafted: int, num_accepted: int) -> None:
        """Adds one draft."""
        self.num_drafted = self.num_drafted * RECENT_MEMORY + num_drafted
        self.num_accepted = self.num_accepted * RECENT_MEMORY + num_accepted

    def count_passes(self, num_passes: int, num_expected: float) -> None:
        """Adds the passes of one step."""
        self.pass_share += (num_passes / num_expected - self.pass_share) * (1.0 - RECENT_MEMORY)


@dataclass(slots=True)
class MissedTokens:
    """The tokens that a drafter would have brought beyond the best free draft if it had read the text: the total, and
    a decayed mean for each step.
    """

    total: float = 0.0
    num_steps: float = 0.0
    recent: float = 0.0

    def add(self, advantage: float) -> None:
        """Counts one step."""
        self.total += advantage
        self.recent = self.recent * RECENT_MEMORY + advantage
        self.num_steps = self.num_steps * RECENT_MEMORY + 1.0

    @property
    def rate(self) -> float:
        """Tokens a step."""
        return self.recent / max(1.0, self.num_steps)


@dataclass(slots=True)
class OwnHistory:
    """What is known of one drafter on one sequence.

    `reach` is the most nodes that a draft may have: the first draft is short, and each success allows longer ones.
    `net_s` is the time that drafts saved minus what they cost. `unrepaid_prefill_s` is the time spent on reading the
    text since a draft was last accepted. `missed` counts the tokens that the drafter would have brought while it had
    not read the text. `is_started` says that it was found worth reading the text, and `is_probing` that its next draft
    is a probe.
    """

    bias: SequenceBias = field(default_factory=SequenceBias)
    advance: list[Rate] = field(default_factory=lambda: [Rate.of_sequence() for _ in range(MAX_DEPTH)])
    guard: Guard = field(default_factory=Guard)
    retry: RetryBackoff = field(default_factory=RetryBackoff)
    reach: int = _FIRST_REACH
    net_s: float = 0.0
    unrepaid_prefill_s: float = 0.0
    missed: MissedTokens = field(default_factory=MissedTokens)
    is_started: bool = False
    has_drafted: bool = False
    is_probing: bool = False

    def succeed(self, num_accepted: int) -> None:
        """Allows longer drafts after a success."""
        if num_accepted > 0:
            self.reach = max(self.reach, _FIRST_REACH + 2 * num_accepted)

    def fail(self) -> None:
        """Allows a single node: the next draft only asks whether things have changed."""
        self.reach = 1


@dataclass(slots=True)
class SequenceHistory:
    """One sequence: its drafters by name, and what probes may cost in its own time."""

    drafters: dict[str, OwnHistory] = field(default_factory=dict)
    budget: ProbeBudget = field(default_factory=ProbeBudget)

    @property
    def lost_s(self) -> float:
        """Seconds by which drafters cost more than they saved."""
        return sum(max(0.0, -own.net_s) for own in self.drafters.values())

    @property
    def unrepaid_prefill_s(self) -> float:
        """Seconds of prefill after which no token was accepted."""
        return sum(own.unrepaid_prefill_s for own in self.drafters.values())

    def of(self, drafter: str) -> OwnHistory:
        """The drafter's, new where it has none."""
        own = self.drafters.get(drafter)
        if own is None:
            own = self.drafters[drafter] = OwnHistory()
        return own


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


class Portfolio:
    """The histories of all drafters. Those in `model_drafters` ask a model, whose confidence is worth more than it
    says: what it is sure of is hardly ever wrong."""

    def __init__(self, model_drafters: Collection[str] = ()) -> None:
        self._drafters = {name: DrafterHistory(ConfidenceModel(*_MODEL_CALIBRATION)) for name in model_drafters}

    def of(self, drafter: str) -> DrafterHistory:
        """The drafter's, new where it has none."""
        history = self._drafters.get(drafter)
        if history is None:
            history = self._drafters[drafter] = DrafterHistory()
        return history

    def calibration(self, drafter: str, own: OwnHistory) -> Calibration:
        """What the drafter's confidence is worth on this sequence."""
        return self.of(drafter).confidence.calibration(own.bias)

    def free_candidate(self, draft: Draft, own: OwnHistory, floors: Sequence[float]) -> Candidate:
        """Returns a draft that exists as a candidate: at most as many nodes as there are floors, up to the first one
        that is less likely than its floor to be accepted."""
        survivals = calibrated_survivals(cut(draft, len(floors)), self.calibration(draft.drafter, own))
        lowest = zip(accumulate(survivals, min), floors, strict=False)
        kept = takewhile(lambda node: node[0] >= max(LEAST_SURVIVAL, node[1]), lowest)
        return Candidate(draft.drafter, [survival for survival, _ in kept])

    def guesses(self, free_drafts: Sequence[Draft], history: SequenceHistory) -> list[float]:
        """Returns the probability that each token of the best free chain is right, with those before it. A drafter that
        reads ahead checks them in one pass."""
        calibrated = [(draft, self.calibration(draft.drafter, history.of(draft.drafter))) for draft in free_drafts]
        chains = [calibrated_survivals(cut(draft, chain_length(draft)), own) for draft, own in calibrated]
        return max(chains, key=sum, default=[])

    def expectation(self, drafter: str, own: OwnHistory, limit: int) -> Expectation:
        """Returns what to expect of a draft that is still to be made."""
        usual = self.of(drafter)
        pairs = zip(own.advance[:limit], usual.advance, strict=False)
        rates = (own_rate.estimate(usual_rate.estimate(_FIRST_GUESS)) for own_rate, usual_rate in pairs)
        return Expectation(tuple(accumulate(rates, mul)), usual.continuation.estimate(_FIRST_GUESS))

    def learn_free(self, draft: Draft, own: OwnHistory, committed: Sequence[int]) -> None:
        """Learns from a draft that existed before the plan."""
        judgements = judge(draft, committed)
        model = self.of(draft.drafter).confidence
        for judgement in judgements:
            model.learn(judgement, own.bias)
        own.succeed(sum(judgement.is_accepted for judgement in judgements))

    def learn_made(self, draft: Draft, window: int, own: OwnHistory, committed: Sequence[int]) -> None:
        """Learns from a draft that was made for a plan of `window` nodes; an empty one is evidence too."""
        self.learn_free(draft, own, committed)
        own.has_drafted = True
        usual = self.of(draft.drafter)
        for node in judge_chain(draft, window, committed):
            own.advance[node.depth].record(node.is_accepted)
            usual.advance[node.depth].record(node.is_accepted)
            if node.is_drafted:
                usual.continuation.record(node.is_accepted)


def pass_likelihoods(guesses: Sequence[float], num_depths: int) -> list[float]:
    """Returns for each depth of a draft the probability that it takes a pass of its own, because a token before it was
    not guessed."""
    likelihoods = [1.0, *(1.0 - guess for guess in guesses)][:num_depths]
    return likelihoods + [1.0] * (num_depths - len(likelihoods))


def made_candidate(
    drafter: str,
    expectation: Expectation,
    passes: Sequence[float],
    shared_s: float,
    own_s: float,
    row_s: float,
    rate: float,
    price_s: float,
) -> Candidate:
    """Returns a draft that is still to be made as a candidate. A depth that takes a pass costs `shared_s` once for all
    sequences and `own_s` for each; `passes` are the probabilities that depths take one.

    A drafter that stops by itself spends nothing on the depths below, and one that reads ahead needs no pass for some
    of its tokens; both count as gains.
    """
    pass_price = rate * (shared_s + own_s)
    gains: list[float] = []
    for accepted, drafted, needs_pass in zip(expectation.accepted, expectation.drafted, passes, strict=True):
        if accepted < LEAST_SURVIVAL:
            break
        gains.append(accepted + (1.0 - drafted) * rate * row_s + (1.0 - drafted * needs_pass) * pass_price)
    return Candidate(drafter, never_rising(gains), node_s=own_s, price_s=price_s, depth_s=shared_s)


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
