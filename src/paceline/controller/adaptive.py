"""`AdaptiveController`: spends each step's rows where they bring the most tokens per second, and nothing where no draft
pays.

It joins the parts: `cost_model` says what rows and depths cost, `candidates` what drafts are likely to bring, `options`
who may draft at all, `planner` chooses, `probing` bounds the price of errors. docs/architecture.md describes the whole.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from paceline.controller.accounting import SpeculationTimes
from paceline.controller.billing import Bill, make_bill
from paceline.controller.candidates import Portfolio, SequenceHistory
from paceline.controller.cost_model import CostModel
from paceline.controller.options import SMALL_CATCH_UP, Limits, OptionChooser, Situation, early_row_s
from paceline.controller.pace import Pace
from paceline.controller.planner import best_plan
from paceline.controller.probing import ProbeBudget
from paceline.controller.protocol import Offer, StepOutcome, StepRoom, level
from paceline.core import Plan, Sequence
from paceline.core.draft_tree import chain_length

_COPY_LENGTH = 5  # nodes of a free draft that make a step one that copies


class AdaptiveController:
    """Plans by measured costs and measured acceptance.

    Window 0 is a normal outcome. A drafter with a price starts on a sequence once what it would have brought so far is
    a part of the price, and what it will bring repays it. One that is off is probed, within 1 % of all time and of
    the sequence's own.
    """

    def __init__(self, costs: CostModel, limits: Limits) -> None:
        self._times = SpeculationTimes()
        self.costs = costs
        self._limits = limits
        self._portfolio = Portfolio(costs.costs.drafters)
        self._chooser = OptionChooser(self._portfolio, costs, limits)
        self._histories: dict[Sequence, SequenceHistory] = {}
        self._step = 0
        self._pace = Pace()
        self._pace_between_copies = Pace()
        self._situation = Situation.empty()

    @property
    def times(self) -> SpeculationTimes:
        """Where the time of all steps with plans went; what was lost is counted when a sequence has ended."""
        self._forget_ended()
        return self._times

    def plan(self, sequences: list[Sequence], offers: list[Offer], room: StepRoom) -> list[Plan]:
        """One plan for each sequence; what pays best together."""
        if not sequences:
            return []
        self._step += 1
        if len(self._histories) > len(sequences):
            self._forget_ended()
        limits = [
            min(sequence.usable_window(self._limits.num_speculative_tokens), offer.max_window)
            for sequence, offer in zip(sequences, offers, strict=True)
        ]
        situation = self._situate(sequences, offers, room, min(room.spare_rows, sum(limits)))
        self._situation = situation
        options = [
            self._chooser.options(sequence, self._history(sequence), offer, limit, situation)
            for sequence, offer, limit in zip(sequences, offers, limits, strict=True)
        ]
        picks = best_plan([option.candidates for option in options], situation.steps_s, situation.rate)
        plans = self._chooser.plans(options, picks, limits, situation)
        windows = level([plan.window for plan in plans], room.spare_rows)
        return [plan.with_window(window) for plan, window in zip(plans, windows, strict=True)]

    def observe(self, outcome: StepOutcome) -> None:
        """Learns from one step: costs, acceptance, balances."""
        if not outcome.sequences:
            return
        num_drafted = sum(map(len, outcome.drafts))
        situation = self._situation
        if outcome.room.num_prompt_rows == 0:
            self.costs.refine_step(outcome.room.num_rows + num_drafted, situation.context, outcome.target_s)
        self._refine_drafters(outcome, situation)
        readings_s = [self._reading_s(*pair) for pair in zip(outcome.plans, outcome.offers, strict=True)]
        bill = make_bill(outcome, readings_s, situation.steps_s, situation.plain_s, self.costs.common_factor)
        self._keep_times(outcome, bill)
        for index in range(len(outcome.sequences)):
            self._learn(outcome, index, bill)

    def _situate(self, sequences: list[Sequence], offers: list[Offer], room: StepRoom, num_extra: int) -> Situation:
        num_sequences = len(sequences)
        context = sum(len(sequence.token_ids) for sequence in sequences) / num_sequences
        plain_s = self.costs.step_s(num_sequences, context)
        self._pace.start(plain_s)
        self._pace_between_copies.start(plain_s)
        steps_s = self.costs.steps_s(room.num_rows, num_extra, context)
        overall_rate = self._pace.speed_up * num_sequences / plain_s
        situation = Situation(
            step=self._step,
            num_sequences=num_sequences,
            context=context,
            steps_s=steps_s,
            row_s=early_row_s(steps_s),
            plain_s=plain_s,
            rate=self._pace_between_copies.speed_up * num_sequences / plain_s,
            num_ready=_count_ready(offers),
        )
        prices_s = situation.row_prices(0, [1.0] * self._limits.num_speculative_tokens)
        if num_sequences > 1:  # rows of other sequences come between
            prices_s = [min(prices_s, default=0.0)] * len(prices_s)
        return replace(situation, free_floors=[overall_rate * price_s for price_s in prices_s])

    def _history(self, sequence: Sequence) -> SequenceHistory:
        history = self._histories.get(sequence)
        if history is None:
            history = self._histories[sequence] = SequenceHistory()
        return history

    def _budgets(self, sequences: list[Sequence]) -> list[ProbeBudget]:
        """Of all time, and of each of these sequences'."""
        return [self._chooser.budget, *(self._history(sequence).budget for sequence in sequences)]

    def _forget_ended(self) -> None:
        """Takes in what drafters lost on the sequences that have ended."""
        for sequence in [sequence for sequence in self._histories if sequence.is_finished]:
            history = self._histories.pop(sequence)
            self._times.lost_s += history.lost_s * self.costs.common_factor
            self._times.wasted_s += history.vain_reading_s * self.costs.common_factor

    def _reading_s(self, plan: Plan, offer: Offer) -> float:
        """What a plan's drafter takes to read a text that is new to it; what it reads of a known one is part of its
        draft."""
        num_missed = offer.num_missed.get(plan.drafter, 0)
        return self.costs.catch_up_s(plan.drafter, num_missed) if num_missed > SMALL_CATCH_UP else 0.0

    def _refine_drafters(self, outcome: StepOutcome, situation: Situation) -> None:
        """Counts each drafter's passes, and compares its time with what they should have taken, where it read little
        besides."""
        for name, measured_s in outcome.drafting_s.items():
            if not self.costs.has_price(name):
                continue
            asked = [i for i, plan in enumerate(outcome.plans) if plan.drafter == name and plan.window > 0]
            sizes = [chain_length(outcome.drafts[i]) for i in asked]
            num_depths = max(sizes, default=0)
            passes = outcome.passes.get(name, [sum(size > depth for size in sizes) for depth in range(num_depths)])
            if num_depths > 0:
                self._count_passes(name, outcome, dict(zip(asked, sizes, strict=True)), len(passes))
            num_missed = sum(outcome.offers[i].num_missed.get(name, 0) for i in asked)
            if num_depths > 0 and num_missed <= SMALL_CATCH_UP:
                passes_s = sum(self.costs.depth_s(name, num_rows, situation.context) for num_rows in passes)
                predicted_s = self.costs.catch_up_s(name, num_missed) + passes_s
                self.costs.refine_drafter(name, predicted_s, measured_s)

    def _count_passes(self, name: str, outcome: StepOutcome, sizes: dict[int, int], num_passes: int) -> None:
        """Compares the passes of a drafter with what its drafts, `sizes` long by sequence, were expected to take: the
        sequences share them."""
        history = self._portfolio.of(name)
        history.reads_ahead = name in outcome.passes
        num_expected = max(
            sum(self._chooser.passes(name, outcome.offers[index], self._history(outcome.sequences[index]), size))
            for index, size in sizes.items()
        )
        history.count_passes(num_passes, num_expected)

    def _keep_times(self, outcome: StepOutcome, bill: Bill) -> None:
        self._times.add(outcome.drafting_s, outcome.target_s)
        self._times.wasted_s += bill.wasted_s * self.costs.common_factor
        num_tokens = sum(len(verdict.committed) for verdict in outcome.verdicts)
        worth_s = num_tokens * self._situation.plain_s / len(outcome.sequences)
        if outcome.room.num_prompt_rows == 0:
            self._times.plain_s += worth_s * self.costs.common_factor
            self._times.compared_s += outcome.target_s + sum(outcome.drafting_s.values())
        for budget in self._budgets(outcome.sequences):
            budget.total_s += self._situation.plain_s + bill.extra_s
        self._keep_pace(outcome, bill)

    def _keep_pace(self, outcome: StepOutcome, bill: Bill) -> None:
        """Records all sequences, and apart those that did not copy; without the prefill of whole texts, which is done
        once."""
        plain_step_s = self._situation.plain_s / len(outcome.sequences)
        for index, (plan, offer) in enumerate(zip(outcome.plans, outcome.offers, strict=True)):
            plain_s = len(outcome.verdicts[index].committed) * plain_step_s
            spent_s = plain_step_s + bill.cost_s[index] - bill.reading_s[index]
            self._pace.record(plain_s, spent_s)
            if plan.drafter in offer.num_missed or plan.window < _COPY_LENGTH:
                self._pace_between_copies.record(plain_s, spent_s)

    def _learn(self, outcome: StepOutcome, index: int, bill: Bill) -> None:
        """From one sequence's drafts, all of them, and what they cost and saved."""
        history = self._history(outcome.sequences[index])
        plan, draft, committed = outcome.plans[index], outcome.drafts[index], outcome.verdicts[index].committed
        for free in outcome.offers[index].free_drafts:
            self._portfolio.learn_free(free, history.of(free.drafter), committed)
        if plan.window == 0:
            return
        own = history.of(plan.drafter)
        own.net_s += bill.saved_s[index]
        own.vain_reading_s = 0.0 if outcome.verdicts[index].path else own.vain_reading_s + bill.reading_s[index]
        is_made = self.costs.has_price(plan.drafter)
        if draft.drafter != plan.drafter:
            return
        if is_made:
            self._portfolio.learn_made(draft, plan.window, own, committed)
        num_drafted = chain_length(draft) if is_made else len(draft)  # branches come on top
        self._portfolio.of(plan.drafter).count(num_drafted, len(outcome.verdicts[index].path))
        if outcome.offers[index].num_missed.get(plan.drafter, 0) <= SMALL_CATCH_UP:
            own.guard.record(bill.saved_s[index], self._situation.plain_s, self._step)
            if own.guard.is_pausing(self._step + 1):
                own.fail()
        if own.is_probing:
            own.is_probing = False
            own.patience.record(bill.saved_s[index] > 0.0)
            for budget in self._budgets([outcome.sequences[index]]):
                budget.spent_s += max(0.0, -bill.saved_s[index])


def _count_ready(offers: list[Offer]) -> Counter[str]:
    """Sequences that each drafter with a price has read."""
    return Counter(name for offer in offers for name, missed in offer.num_missed.items() if missed <= SMALL_CATCH_UP)
