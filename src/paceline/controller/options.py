"""`Options`: what one sequence may draft in one step, and the plan that follows from the planner's pick.

This module decides which drafters a sequence may use, when a drafter starts to read a text, and when it is probed.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from paceline.controller.acceptance import DecayedRatio
from paceline.controller.candidates import Expectation, OwnHistory, SequenceHistory, never_rising
from paceline.controller.planner import Candidate, Pick
from paceline.controller.prices import StepPrices
from paceline.controller.probing import ProbeBudget
from paceline.controller.protocol import REASON_NO_DRAFT, REASON_NOT_ALLOWED, Offer
from paceline.core import Plan, Sequence

DOES_NOT_PAY = "does not pay"
FALLBACK = "fallback_threshold"

SMALL_CATCH_UP = 32  # tokens; reading more than this is a prefill, which the tokens to come must repay
_REPAYMENT = 1.25  # least expected gain of a prefill, divided by its cost (decision 024)
_LEAST_MISSED_SHARE = 0.05  # of the prefill's cost; what must be missed before a start (decision 022)
_PROBE_WINDOW = 4
_FALLBACK_PERIOD = 64  # steps between the probes of a drafter below the user's threshold
_ANSWER_LENGTH = 200  # the expected length of an answer, in tokens
_MOST_READ_AHEAD = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """What users set: the most draft tokens of one sequence, and the acceptance rate below which a drafter is off."""

    num_speculative_tokens: int
    fallback_threshold: float | None = None


@dataclass(frozen=True, slots=True)
class StepState:
    """What all sequences share in one step. `free_floors[d]` is the least survival that a node of a free draft must
    have at depth d. `budget` limits the time of all probes. `num_ready` says for each model drafter in how many
    sequences it can draft without a prefill."""

    number: int
    prices: StepPrices
    limits: Limits
    free_floors: list[float]
    budget: ProbeBudget
    num_ready: Mapping[str, int]


@dataclass(slots=True)
class Options:
    """One sequence's candidates in one step; `collect` fills them in.

    A `forced` drafter drafts whatever the planner picks, because it is started or probed. `expectations` holds the
    expected draft of each model drafter. `reason` says why nothing is drafted, if so.
    """

    sequence: Sequence
    history: SequenceHistory
    offer: Offer
    step: StepState
    candidates: list[Candidate] = field(default_factory=list)
    expectations: dict[str, Expectation] = field(default_factory=dict)
    reason: str = REASON_NO_DRAFT
    forced: str | None = None

    @property
    def limit(self) -> int:
        """The most draft tokens that the limits, the request, the rest of `max_tokens` and the scheduler allow."""
        window = self.sequence.usable_window(self.step.limits.num_speculative_tokens)
        return min(window, self.offer.max_window)

    def collect(self) -> Options:
        """Finds the candidates and returns itself. In the histories it changes only what concerns starts and probes."""
        for draft in self.offer.free_drafts:
            if num_nodes := self._num_allowed(draft.drafter):
                own = self.history.of(draft.drafter)
                self.candidates.append(own.free_candidate(draft, self.step.free_floors[:num_nodes]))
        free_worth = max((self.step.prices.worth(candidate, 1) for candidate in self.candidates), default=0.0)
        for name in self.offer.num_missed:
            num_nodes = self._num_allowed(name)
            if num_nodes and self.forced is None:
                self._add_model(name, num_nodes, free_worth)
        return self

    def user(self, pick: Pick) -> str | None:
        """Returns the drafter that drafts: the forced one, else the one that the planner picked, else None."""
        return self.forced or (None if pick.candidate is None else self.candidates[pick.candidate].drafter)

    def _num_allowed(self, name: str) -> int:
        """Returns the most nodes that this drafter may draft. Also sets `reason`, in case nothing is drafted."""
        names = self.sequence.request.speculation.drafters
        if self.limit == 0 or (names is not None and name not in names):
            self.reason = REASON_NOT_ALLOWED
            return 0
        self.reason = DOES_NOT_PAY
        own, threshold = self.history.of(name), self.step.limits.fallback_threshold
        if own.guard.is_pausing(self.step.number):
            return 0
        num_nodes, acceptance = min(self.limit, own.reach), own.usual.acceptance
        if threshold is None or acceptance.above >= threshold * acceptance.below:
            return num_nodes
        self.reason = FALLBACK
        return min(num_nodes, _PROBE_WINDOW) if self.step.number % _FALLBACK_PERIOD == 0 else 0

    def _add_model(self, name: str, num_nodes: int, free_worth: float) -> None:
        """Adds a model drafter as a candidate if it has read the text and is expected to save time. Otherwise forces it
        if it is worth starting or may be probed."""
        own, num_missed = self.history.of(name), self.offer.num_missed[name]
        self.expectations[name] = own.expectation(num_nodes)
        candidate = self._made_candidate(name, own)
        is_ready = num_missed <= SMALL_CATCH_UP
        worth = self.step.prices.worth(candidate, self.step.num_ready[name] + (not is_ready))
        if is_ready:
            own.is_started = False
            own.missed, own.num_missed = DecayedRatio(), 0.0
            if worth > 0.0:
                self.candidates.append(candidate)
                return
        elif own.is_started or self._is_worth_starting(name, own, worth, free_worth):
            own.is_started = True
            self._force(name)
            return
        is_off = worth <= 0.0 or own.guard.is_in_doubt
        if is_off and own.retry.wait() and self._can_probe(name):
            own.is_probing = True
            self.expectations[name] = own.expectation(min(num_nodes, _PROBE_WINDOW))
            self._force(name)

    def _force(self, name: str) -> None:
        self.candidates.clear()
        self.forced = name

    def _made_candidate(self, name: str, own: OwnHistory) -> Candidate:
        """Returns the candidate for a draft that does not exist yet.

        A drafter that stops by itself saves the rows and passes of the depths that it does not reach, and one that
        reads ahead saves the passes of some tokens. Both count as gains. A drafter that is in doubt must also repay the
        time for the tokens that it has to read first.
        """
        prices, expectation = self.step.prices, self.expectations[name]
        one_s, all_s = (depth_s(name, own, count, prices) for count in (1, prices.num_sequences))
        own_s = (all_s - one_s) / max(1, prices.num_sequences - 1)
        passes = self.history.pass_likelihoods(name, self.offer.free_drafts, len(expectation.accepted))
        gains = [
            accepted + prices.rate * ((1.0 - drafted) * prices.row_s + (1.0 - drafted * needs_pass) * one_s)
            for accepted, drafted, needs_pass in zip(expectation.accepted, expectation.drafted, passes, strict=True)
        ]
        num_missed = self.offer.num_missed[name]
        must_repay = own.guard.is_in_doubt and num_missed <= SMALL_CATCH_UP
        price_s = prices.costs.catch_up_s(name, num_missed) if must_repay else 0.0
        return Candidate(name, never_rising(gains), node_s=own_s, price_s=price_s, depth_s=max(0.0, one_s - own_s))

    def _is_worth_starting(self, name: str, own: OwnHistory, worth: float, free_worth: float) -> bool:
        """Returns whether enough tokens were missed and the steps to come are expected to repay the prefill."""
        own.missed.record(max(0.0, worth - free_worth))
        own.num_missed += max(0.0, worth - free_worth)
        price = self.step.prices.rate * self.step.prices.costs.catch_up_s(name, self.offer.num_missed[name])
        num_steps = self._num_tokens_to_come() / (1.0 + worth)
        repays = own.missed.above * num_steps >= _REPAYMENT * price * max(1.0, own.missed.below)
        return repays and not own.guard.is_in_doubt and own.num_missed >= _LEAST_MISSED_SHARE * price

    def _num_tokens_to_come(self) -> float:
        """Returns the expected number of tokens to come: the rest of a usual answer, at most that of `max_tokens`."""
        expected = max(_ANSWER_LENGTH - self.sequence.num_output_tokens, _ANSWER_LENGTH / 2)
        limit = self.sequence.request.sampling.max_tokens
        return expected if limit is None else max(0.0, min(expected, limit - self.sequence.num_output_tokens))

    def _can_probe(self, name: str) -> bool:
        """Returns whether a probe fits the budget of the engine and the budget of this sequence."""
        prices = self.step.prices
        node_s = prices.costs.depth_s(name, 1, prices.context) + prices.row_s
        price_s = prices.costs.catch_up_s(name, self.offer.num_missed[name]) + _PROBE_WINDOW * node_s
        budgets = (self.step.budget, self.history.budget)
        return all(budget.can_afford(price_s, prices.plain_s) for budget in budgets)


def depth_s(name: str, own: OwnHistory, num_sequences: int, prices: StepPrices) -> float:
    """Returns the seconds that one depth of drafts takes, if reading ahead saves as many passes as it recently did."""
    return own.usual.passes.estimate(1.0) * prices.costs.depth_s(name, num_sequences, prices.context)


def make_plans(options: abc.Sequence[Options], picks: abc.Sequence[Pick], prices: StepPrices) -> list[Plan]:
    """Returns the plan of each sequence: a free draft with the picked window, a model's draft with the thresholds below
    which it ends, or no draft with the reason."""
    users = [option.user(pick) for option, pick in zip(options, picks, strict=True)]
    pairs = list(zip(options, picks, users, strict=True))
    num_free_nodes = sum(pick.window for option, pick, name in pairs if name not in option.expectations)
    plans: list[Plan] = []
    for option, pick, name in pairs:
        if name is None:
            plans.append(Plan("none", 0, reason=option.reason))
        elif name in option.expectations:
            plans.append(_model_plan(name, option, users.count(name), num_free_nodes, prices))
        else:
            plans.append(Plan(name, pick.window))
    return plans


def _model_plan(name: str, option: Options, num_users: int, num_rows: int, prices: StepPrices) -> Plan:
    """Returns the plan for a model's draft in a step in which free drafts have `num_rows` rows.

    The draft ends before a node whose survival is worth less than half a row. It also ends if the next node is expected
    to be worth less than its row and its share of the drafter's pass. To compute the share, the plan assumes that the
    drafts of the other sequences end at the depths that are expected for this one.
    """
    own, expectation = option.history.of(name), option.expectations[name]
    num_drafting = [max(1.0, num_users * drafted) for drafted in expectation.drafted]
    row_s = prices.row_prices(num_rows, num_drafting)
    pass_s = [depth_s(name, own, round(num), prices) / num for num in num_drafting]
    worth = prices.rate / expectation.continuation
    draft_rows = range(num_users, num_users + _MOST_READ_AHEAD + 1)
    passes_s = [prices.costs.depth_s(name, count, prices.context) for count in draft_rows]
    return Plan(
        name,
        len(row_s),
        stop_below=prices.rate * prices.row_s / 2,
        deepen_above=tuple(worth * (row + own_pass) for row, own_pass in zip(row_s[1:], pass_s[1:], strict=True)),
        branch_above=tuple(prices.rate * row for row in row_s),
        read_above=tuple(num_users * (more - less) / passes_s[0] for less, more in pairwise(passes_s)),
        calibration=own.calibration,
    )
