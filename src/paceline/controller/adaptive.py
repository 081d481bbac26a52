"""`AdaptiveController`: plans the drafts that bring the most tokens per second, and none if no draft saves time.

Start reading here. `prices` says what rows and passes cost. `candidates` estimates how many tokens a draft will bring.
`options` decides which drafters a sequence may use. `planner` chooses the drafts, and `probing` limits losses.
docs/controller.md explains all of it with an example.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial

from paceline.controller.acceptance import DecayedRatio
from paceline.controller.accounting import SpeculationTimes
from paceline.controller.billing import Bill, make_bills
from paceline.controller.candidates import SequenceHistory, new_portfolio
from paceline.controller.cost_model import CostModel
from paceline.controller.options import SMALL_CATCH_UP, Limits, Options, StepState, make_plans
from paceline.controller.planner import best_plan
from paceline.controller.prices import StepPrices
from paceline.controller.probing import ProbeBudget
from paceline.controller.protocol import Offer, StepOutcome, StepRoom, level
from paceline.core import Plan, Sequence
from paceline.core.draft_tree import chain_length

_COPY_LENGTH = 5  # a step with a free draft of so many nodes copies a passage
_FIRST_SPEEDUP = 1.3  # assumed before anything is measured
_NUM_FIRST_STEPS = 12.0  # the assumption counts as much as this many plain steps


def _first_speedup() -> DecayedRatio:
    return DecayedRatio(above=_FIRST_SPEEDUP * _NUM_FIRST_STEPS, below=_NUM_FIRST_STEPS)


class AdaptiveController:
    """Plans each step from measured costs and measured acceptance. Window 0, plain decoding, is a normal plan.

    A model drafter reads a sequence's text only after it has missed enough tokens there, and only if the tokens to
    come are expected to repay the prefill. A drafter that is off is probed now and then. Probes may cost 1 % of the
    engine's time and 1 % of the sequence's time, plus two plain steps each.
    """

    def __init__(self, costs: CostModel, limits: Limits) -> None:
        self.costs = costs
        self._limits = limits
        self._times = SpeculationTimes()
        self._portfolio = new_portfolio(costs.costs.drafters)
        self._histories = defaultdict[Sequence, SequenceHistory](partial(SequenceHistory, self._portfolio))
        self._budget = ProbeBudget()
        self._speedup = _first_speedup()
        self._speedup_between_copies = _first_speedup()
        self._number = 0
        self._prices: StepPrices | None = None

    @property
    def times(self) -> SpeculationTimes:
        """The times of all steps with plans. What drafters lost on a sequence is added when the sequence has ended."""
        self._forget_ended()
        return self._times

    def plan(self, sequences: list[Sequence], offers: list[Offer], room: StepRoom) -> list[Plan]:
        """Returns one plan for each sequence. Together the plans bring the most tokens for their time."""
        if not sequences:
            return []
        self._number += 1
        if len(self._histories) > len(sequences):
            self._forget_ended()
        num_extra = min(room.spare_rows, self._limits.num_speculative_tokens * len(sequences))
        context = sum(len(sequence.token_ids) for sequence in sequences) / len(sequences)
        steps_s = self.costs.steps_s(room.num_rows, num_extra, context)
        plain_s = self.costs.step_s(len(sequences), context)
        speedup = _speedup(self._speedup_between_copies)
        self._prices = prices = StepPrices(self.costs, len(sequences), context, plain_s, steps_s, speedup)
        floors = prices.free_floors(self._limits.num_speculative_tokens, _speedup(self._speedup))
        state = StepState(self._number, prices, self._limits, floors, self._budget, _count_ready(offers))
        options = [
            Options(sequence, self._histories[sequence], offer, state).collect()
            for sequence, offer in zip(sequences, offers, strict=True)
        ]
        picks = best_plan([option.candidates for option in options], prices.steps_s, prices.rate)
        plans = make_plans(options, picks, prices)
        windows = level([plan.window for plan in plans], room.spare_rows)
        return [plan.with_window(window) for plan, window in zip(plans, windows, strict=True)]

    def observe(self, outcome: StepOutcome) -> None:
        """Learns from one step what rows cost, which drafts were accepted, and the time each drafter saved or lost."""
        if not outcome.sequences or self._prices is None:
            return
        prices = self._prices
        if outcome.room.num_prompt_rows == 0:
            num_rows = outcome.room.num_rows + sum(map(len, outcome.drafts))
            self.costs.refine_step(num_rows, prices.context, outcome.target_s)
        for name, measured_s in outcome.drafting_s.items():
            if self.costs.has_price(name):
                self._refine_drafter(name, measured_s, outcome, prices)
        bills = list(make_bills(outcome, prices))
        self._keep_times(outcome, bills, prices)
        self._keep_speedup(outcome, bills, prices)
        for index, bill in enumerate(bills):
            self._learn(outcome, index, bill, prices)

    def _forget_ended(self) -> None:
        """Adds the time that drafters lost on ended sequences, and drops the histories of these sequences."""
        for sequence in [sequence for sequence in self._histories if sequence.is_finished]:
            for own in self._histories.pop(sequence).drafters.values():
                self._times.lost_s += max(0.0, -own.net_s) * self.costs.common_factor
                self._times.wasted_s += own.unrepaid_prefill_s * self.costs.common_factor

    def _refine_drafter(self, name: str, measured_s: float, outcome: StepOutcome, prices: StepPrices) -> None:
        """Compares the number of a drafter's passes, which its sequences share, with the expected number. If it had few
        other tokens to read, it also corrects the cost model by the measured time."""
        users = [i for i, plan in enumerate(outcome.plans) if plan.drafter == name and plan.window > 0]
        sizes = {i: chain_length(outcome.drafts[i]) for i in users}
        num_depths = max(sizes.values(), default=0)
        if num_depths == 0:
            return
        passes = outcome.passes.get(name)
        if passes is None:
            passes = [sum(size > depth for size in sizes.values()) for depth in range(num_depths)]
        usual = self._portfolio[name]
        usual.reads_ahead = name in outcome.passes
        num_expected = max(
            sum(self._histories[outcome.sequences[i]].pass_likelihoods(name, outcome.offers[i].free_drafts, size))
            for i, size in sizes.items()
        )
        usual.passes.record(len(passes), num_expected)
        num_missed = sum(outcome.offers[i].num_missed.get(name, 0) for i in sizes)
        if num_missed <= SMALL_CATCH_UP:
            passes_s = sum(self.costs.depth_s(name, num_rows, prices.context) for num_rows in passes)
            self.costs.refine_drafter(name, self.costs.catch_up_s(name, num_missed) + passes_s, measured_s)

    def _keep_times(self, outcome: StepOutcome, bills: list[Bill], prices: StepPrices) -> None:
        self._times.add(outcome.drafting_s, outcome.target_s)
        pairs = zip(bills, outcome.verdicts, strict=True)
        wasted_s = sum(bill.cost_s - bill.prefill_s for bill, verdict in pairs if not verdict.path)
        self._times.wasted_s += wasted_s * self.costs.common_factor
        if outcome.room.num_prompt_rows == 0:
            num_tokens = sum(len(verdict.committed) for verdict in outcome.verdicts)
            self._times.plain_s += num_tokens / prices.num_sequences * prices.plain_s * self.costs.common_factor
            self._times.compared_s += outcome.target_s + sum(outcome.drafting_s.values())
        step_s = prices.plain_s + sum(bill.cost_s for bill in bills)
        for budget in (self._budget, *(self._histories[sequence].budget for sequence in outcome.sequences)):
            budget.total_s += step_s

    def _keep_speedup(self, outcome: StepOutcome, bills: list[Bill], prices: StepPrices) -> None:
        """Records the tokens and the time, in plain steps, of all sequences. It records those of the sequences that did
        not copy a passage separately. A prefill is left out, because it happens once."""
        plain_s = prices.plain_s / prices.num_sequences
        spent = [1.0 + (bill.cost_s - bill.prefill_s) / plain_s for bill in bills]
        tokens = [len(verdict.committed) for verdict in outcome.verdicts]
        self._speedup.record(sum(tokens) / len(tokens), sum(spent) / len(tokens))
        pairs = enumerate(zip(outcome.plans, outcome.offers, strict=True))
        others = [i for i, (plan, offer) in pairs if plan.drafter in offer.num_missed or plan.window < _COPY_LENGTH]
        if others:
            above, below = sum(tokens[i] for i in others), sum(spent[i] for i in others)
            self._speedup_between_copies.record(above / len(tokens), below / len(tokens))

    def _learn(self, outcome: StepOutcome, index: int, bill: Bill, prices: StepPrices) -> None:
        """Learns from all drafts of one sequence, and from the time that they cost and saved."""
        history = self._histories[outcome.sequences[index]]
        plan, draft, verdict = outcome.plans[index], outcome.drafts[index], outcome.verdicts[index]
        for free in outcome.offers[index].free_drafts:
            history.of(free.drafter).learn_free(free, verdict.committed)
        if plan.window == 0:
            return
        own = history.of(plan.drafter)
        own.net_s += bill.saved_s
        own.unrepaid_prefill_s = 0.0 if verdict.path else own.unrepaid_prefill_s + bill.prefill_s
        if draft.drafter != plan.drafter:
            return
        is_made = self.costs.has_price(plan.drafter)
        if is_made:
            own.learn_made(draft, plan.window, verdict.committed)
        num_drafted = chain_length(draft) if is_made else len(draft)  # branches are not counted
        own.usual.acceptance.record(len(verdict.path), num_drafted)
        if outcome.offers[index].num_missed.get(plan.drafter, 0) <= SMALL_CATCH_UP:
            own.guard.record(bill.saved_s, prices.plain_s, self._number)
            if own.guard.is_pausing(self._number + 1):
                own.reach = 1  # the next draft is only a test
        if own.is_probing:
            own.is_probing = False
            own.retry.record(bill.saved_s > 0.0)
            for budget in (self._budget, history.budget):
                budget.spent_s += max(0.0, -bill.saved_s)


def _speedup(measured: DecayedRatio) -> float:
    """Returns the recent speed divided by the speed of plain decoding; at least 1."""
    return max(1.0, measured.above / measured.below)


def _count_ready(offers: list[Offer]) -> Counter[str]:
    """Returns for each model drafter the number of sequences in which it can draft without a prefill."""
    return Counter(name for offer in offers for name, missed in offer.num_missed.items() if missed <= SMALL_CATCH_UP)
