"""Decides which drafters a sequence may have in a step, as candidates for the planner, and turns its picks into plans.

It also decides when a drafter starts to read a text, when it is probed, and which reason is given for no draft.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from paceline.controller.candidates import (
    Expectation,
    MissedTokens,
    OwnHistory,
    Portfolio,
    SequenceHistory,
    made_candidate,
    pass_likelihoods,
)
from paceline.controller.cost_model import CostModel
from paceline.controller.planner import Candidate, Pick, worths_by_size
from paceline.controller.probing import ProbeBudget
from paceline.controller.protocol import REASON_NO_DRAFT, REASON_NOT_ALLOWED, Offer
from paceline.core import Calibration, Plan, Sequence

DOES_NOT_PAY = "does not pay"
FALLBACK = "fallback_threshold"

SMALL_CATCH_UP = 32  # tokens; reading more than this must be repaid by the tokens still to come
_REPAYMENT = 1.25  # expected gain over the price of reading a text
_LEAST_MISSED_SHARE = 0.05  # of that price, in tokens missed before a first start
_PROBE_WINDOW = 4
_ROWS_AHEAD = 4
_FALLBACK_PERIOD = 64
_ANSWER_LENGTH = 200  # tokens that an answer is expected to have
_MOST_READ_AHEAD = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """What users set: the most draft tokens for one sequence, and the acceptance rate below which a drafter rests."""

    num_speculative_tokens: int
    fallback_threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """The prices that hold in one step.

    `rate` says how many tokens a second is worth. `steps_s[n]` is the time of the target's pass with n draft rows,
    `row_s` the mean price of the first few rows, `plain_s` the time of a pass with one row for each sequence. A node of
    a free draft at depth d must be accepted with a probability of at least `free_floors[d]`. `num_ready` says how many
    sequences each drafter has read.
    """

    step: int
    num_sequences: int
    context: float
    steps_s: list[float]
    row_s: float
    plain_s: float
    rate: float
    free_floors: abc.Sequence[float] = ()
    num_ready: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> Situation:
        """Returns what holds before the first step."""
        return cls(0, 0, 0.0, [0.0], 0.0, 0.0, 0.0)

    def row_prices(self, num_rows: int, num_drafting: abc.Sequence[float]) -> list[float]:
        """Returns the seconds that a row costs at each depth beside `num_rows` other rows, where `num_drafting[d]`
        sequences are expected to draft to depth d.

        The price is the least mean over the next few depths, so that the rows after a jump in cost share it.
        """
        last = len(self.steps_s) - 1
        rows = [min(last, num_rows + round(added)) for added in accumulate(num_drafting, initial=0.0)]
        depth = len(num_drafting)
        return [
            min(
                (self.steps_s[rows[end]] - self.steps_s[rows[level]]) / max(1, rows[end] - rows[level])
                for end in range(level + 1, min(depth, level + _ROWS_AHEAD) + 1)
            )
            for level in range(depth)
        ]


@dataclass(frozen=True, slots=True)
class _MadeTerms:
    """When a model's draft is to stop: what is expected of it, what the model's confidence is worth, and the longest
    draft."""

    expectation: Expectation
    calibration: Calibration
    most_nodes: int


@dataclass(slots=True)
class Options:
    """One sequence's candidates. A `forced` drafter is used without a choice, because it reads the text or is probed.
    `reason` is given where nothing is drafted."""

    candidates: list[Candidate] = field(default_factory=list)
    terms: dict[str, _MadeTerms] = field(default_factory=dict)
    reason: str = REASON_NO_DRAFT
    forced: str | None = None

    def force(self, drafter: str) -> None:
        """Leaves the planner no choice."""
        self.candidates.clear()
        self.forced = drafter


def early_row_s(steps_s: abc.Sequence[float]) -> float:
    """Returns the mean seconds of the first few draft rows."""
    last = min(_ROWS_AHEAD, len(steps_s) - 1)
    return (steps_s[last] - steps_s[0]) / max(1, last)


class OptionChooser:
    """Turns offers into candidates, and the planner's picks into plans."""

    def __init__(self, portfolio: Portfolio, costs: CostModel, limits: Limits) -> None:
        self.budget = ProbeBudget()
        self._portfolio = portfolio
        self._costs = costs
        self._limits = limits

    def options(
        self, sequence: Sequence, history: SequenceHistory, offer: Offer, limit: int, situation: Situation
    ) -> Options:
        """Returns the candidates of one sequence; changes only its history's entries on drafters that are off."""
        options = Options()
        for draft in offer.free_drafts:
            own = history.of(draft.drafter)
            allowed = self._allowed(options, draft.drafter, sequence, own, limit, situation)
            if allowed:
                options.candidates.append(self._portfolio.free_candidate(draft, own, situation.free_floors[:allowed]))
        free_worth = max((_worth(candidate, situation, 1) for candidate in options.candidates), default=0.0)
        for name, num_missed in offer.num_missed.items():
            own = history.of(name)
            allowed = self._allowed(options, name, sequence, own, limit, situation)
            if allowed and options.forced is None:
                passes = self.passes(name, offer, history, allowed)
                self._add_made(options, name, num_missed, sequence, history, passes, free_worth, situation)
        return options

    def passes(self, name: str, offer: Offer, history: SequenceHistory, num_depths: int) -> list[float]:
        """Returns for each depth of this drafter's draft the probability that it takes a pass of its own."""
        reads_ahead = self._portfolio.of(name).reads_ahead
        guesses = self._portfolio.guesses(offer.free_drafts, history) if reads_ahead else []
        return pass_likelihoods(guesses, num_depths)

    def plans(
        self, options: abc.Sequence[Options], picks: abc.Sequence[Pick], limits: abc.Sequence[int], situation: Situation
    ) -> list[Plan]:
        """Returns the plan of each sequence: a free draft with the window picked, or a model's draft with the
        thresholds at which it stops paying."""
        users = [
            option.forced or (None if pick.candidate is None else option.candidates[pick.candidate].drafter)
            for option, pick in zip(options, picks, strict=True)
        ]
        num_free_nodes = sum(
            pick.window for option, pick, name in zip(options, picks, users, strict=True) if name not in option.terms
        )
        plans: list[Plan] = []
        for option, pick, name, limit in zip(options, picks, users, limits, strict=True):
            if name is None:
                plans.append(Plan("none", 0, reason=option.reason))
            elif name in option.terms:
                terms = replace(option.terms[name], most_nodes=min(limit, option.terms[name].most_nodes))
                plans.append(self._made_plan(name, terms, users.count(name), num_free_nodes, situation))
            else:
                plans.append(Plan(name, pick.window))
        return plans

    def _made_plan(self, name: str, terms: _MadeTerms, num_users: int, num_rows: int, situation: Situation) -> Plan:
        """Returns a plan for a model's draft. It ends where a node is not worth its row, or where the next node is not
        worth its row and its share of the drafter's pass; the share assumes that the other sequences stop as this one
        is expected to."""
        num_drafting = [max(1.0, num_users * drafted) for drafted in terms.expectation.drafted[: terms.most_nodes]]
        row_s = situation.row_prices(num_rows, num_drafting)
        depth_s = {count: self._depth_s(name, count, situation.context) for count in set(map(round, num_drafting))}
        pass_s = [depth_s[round(num)] / num for num in num_drafting]
        worth = situation.rate / terms.expectation.continuation
        return Plan(
            name,
            len(row_s),
            stop_below=situation.rate * situation.row_s / 2,
            deepen_above=tuple(worth * (row + own) for row, own in zip(row_s[1:], pass_s[1:], strict=True)),
            branch_above=tuple(situation.rate * row for row in row_s),
            read_above=self._read_above(name, num_users, situation.context),
            calibration=terms.calibration,
        )

    def _depth_s(self, name: str, num_sequences: int, context: float) -> float:
        """Returns the seconds of one depth of drafts, in passes that read ahead as much as recent ones did."""
        return self._portfolio.of(name).pass_share * self._costs.depth_s(name, num_sequences, context)

    def _read_above(self, name: str, num_users: int, context: float) -> tuple[float, ...]:
        """Returns the price of one more row in a draft pass, measured in saved passes."""
        rows_s = [self._costs.depth_s(name, num_users + extra, context) for extra in range(_MOST_READ_AHEAD + 1)]
        return tuple(num_users * (more - less) / rows_s[0] for less, more in pairwise(rows_s))

    def _allowed(
        self, options: Options, name: str, sequence: Sequence, own: OwnHistory, limit: int, situation: Situation
    ) -> int:
        """Returns the most nodes this drafter may have; where that is 0, sets the reason in `options`."""
        names = sequence.request.speculation.drafters
        if limit == 0 or (names is not None and name not in names):
            options.reason = REASON_NOT_ALLOWED
            return 0
        options.reason = DOES_NOT_PAY
        if own.guard.is_pausing(situation.step):
            return 0
        rate = self._portfolio.of(name).acceptance_rate
        limit = min(limit, own.reach)
        threshold = self._limits.fallback_threshold
        if threshold is None or rate is None or rate >= threshold:
            return limit
        options.reason = FALLBACK
        return min(limit, _PROBE_WINDOW) if situation.step % _FALLBACK_PERIOD == 0 else 0

    def _add_made(
        self,
        options: Options,
        name: str,
        num_missed: int,
        sequence: Sequence,
        history: SequenceHistory,
        passes: list[float],
        free_worth: float,
        situation: Situation,
    ) -> None:
        """Adds a drafter that runs a model: as a candidate if it has read the text, else if it is worth starting, or as
        a probe. Its draft may have as many nodes as there are `passes`."""
        own = history.of(name)
        candidate, terms = self._made(name, own, num_missed, passes, situation)
        options.terms[name] = terms
        is_ready = num_missed <= SMALL_CATCH_UP
        worth = _worth(candidate, situation, situation.num_ready.get(name, 0) + (not is_ready))
        if is_ready:
            own.is_started = False
            own.missed = MissedTokens()
            if worth > 0.0:
                options.candidates.append(candidate)
                return
        elif own.is_started or self._is_worth_starting(name, num_missed, worth, free_worth, sequence, own, situation):
            own.is_started = True
            options.force(name)
            return
        is_off = worth <= 0.0 or own.guard.is_in_doubt
        if is_off and own.retry.wait() and self._can_probe(name, num_missed, history, situation):
            own.is_probing = True
            options.terms[name] = replace(terms, most_nodes=min(len(passes), _PROBE_WINDOW))
            options.force(name)

    def _made(
        self, name: str, own: OwnHistory, num_missed: int, passes: list[float], situation: Situation
    ) -> tuple[Candidate, _MadeTerms]:
        expectation = self._portfolio.expectation(name, own, len(passes))
        one_s = self._depth_s(name, 1, situation.context)
        all_s = self._depth_s(name, situation.num_sequences, situation.context)
        own_s = (all_s - one_s) / (situation.num_sequences - 1) if situation.num_sequences > 1 else 0.0
        must_repay = own.guard.is_in_doubt and num_missed <= SMALL_CATCH_UP
        price_s = self._costs.catch_up_s(name, num_missed) if must_repay else 0.0
        shared_s = max(one_s - own_s, 1e-9)
        candidate = made_candidate(name, expectation, passes, shared_s, own_s, situation.row_s, situation.rate, price_s)
        return candidate, _MadeTerms(expectation, self._portfolio.calibration(name, own), len(passes))

    def _is_worth_starting(
        self,
        name: str,
        num_missed: int,
        worth: float,
        free_worth: float,
        sequence: Sequence,
        own: OwnHistory,
        situation: Situation,
    ) -> bool:
        """Returns whether the steps still to come will repay reading the text, and enough tokens were missed."""
        own.missed.add(max(0.0, worth - free_worth))
        if own.guard.is_in_doubt:
            return False
        price = situation.rate * self._costs.catch_up_s(name, num_missed)
        num_steps = _expected_tokens(sequence) / (1.0 + worth)
        if own.missed.rate * num_steps < _REPAYMENT * price:
            return False
        return own.has_drafted or own.missed.total >= _LEAST_MISSED_SHARE * price

    def _can_probe(self, name: str, num_missed: int, history: SequenceHistory, situation: Situation) -> bool:
        """Returns whether a probe fits the budgets of all time and of this sequence."""
        node_s = self._costs.depth_s(name, 1, situation.context) + situation.row_s
        price_s = self._costs.catch_up_s(name, num_missed) + _PROBE_WINDOW * node_s
        return all(budget.can_afford(price_s, situation.plain_s) for budget in (self.budget, history.budget))


def _expected_tokens(sequence: Sequence) -> float:
    """Returns the expected number of tokens still to come, within `max_tokens`."""
    expected = max(_ANSWER_LENGTH - sequence.num_output_tokens, _ANSWER_LENGTH / 2)
    limit = sequence.request.sampling.max_tokens
    return expected if limit is None else max(0.0, min(expected, limit - sequence.num_output_tokens))


def _worth(candidate: Candidate, situation: Situation, num_sharing: int) -> float:
    """Returns the expected tokens minus their cost at the mean price of a row, for the best number of nodes; at least
    0."""
    row_s = situation.row_s + candidate.depth_s / num_sharing
    return worths_by_size(candidate, row_s, situation.rate)[-1]
