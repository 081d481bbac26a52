"""`AdaptiveController`: spends each step's rows where they bring the most tokens per second, and nothing where no draft
pays.

Start reading here. `cost_model` predicts the time of rows and depths, `candidates` the tokens that drafts bring,
`options` decides who may draft at all, `planner` chooses among them, `probing` bounds the price of errors.
docs/controller.md explains the whole with an example.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from paceline.controller.accounting import SpeculationTimes
from paceline.controller.billing import Bill, make_bill
from paceline.controller.candidates import Portfolio, SequenceHistory
from paceline.controller.cost_model import CostModel
from paceline.controller.options import SMALL_CATCH_UP, Limits, OptionChooser, Situation, early_row_s
from paceline.controller.planner import best_plan
from paceline.controller.probing import ProbeBudget
from paceline.controller.protocol import Offer, StepOutcome, StepRoom, level
from paceline.controller.recent_speedup import RecentSpeedup
from paceline.core import Plan, Sequence
from paceline.core.draft_tree import chain_length

_COPY_LENGTH = 5  # nodes of a free draft that make a step one that copies


class AdaptiveController:
    """Plans each step from measured costs and measured acceptance; window 0, plain decoding, is a normal outcome.

    A drafter that runs a model starts to read a sequence's text once it has missed enough tokens there, and if the
    tokens still to come will repay the prefill. A drafter that is off is probed now and then; probes take at most 1 %
    of all time and of the sequence's own.
    """

    def __init__(self, costs: CostModel, limits: Limits) -> None:
        self._times = SpeculationTimes()
        self.costs = costs
        self._limits = limits
        self._portfolio = Portfolio(costs.costs.drafters)
        self._chooser = OptionChooser(self._portfolio, costs, limits)
        self._histories: dict[Sequence, SequenceHistory] = {}
        self._step = 0
        self._speedup = RecentSpeedup()
        self._speedup_between_copies = RecentSpeedup()
        self._situation = Situation.empty()

    @property
    def times(self) -> SpeculationTimes:
        """The time of all steps with plans, by what it went into; losses are added when a sequence has ended."""
        self._forget_ended()
        return self._times

    def plan(self, sequences: list[Sequence], offers: list[Offer], room: StepRoom) -> list[Plan]:
        """Returns one plan for each sequence: those that together bring the most tokens for their time."""
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
        """Learns from one step what rows cost, which drafts were accepted, and what each drafter gained or lost."""
        if not outcome.sequences:
            return
        num_drafted = sum(map(len, outcome.drafts))
        situation = self._situation
        if outcome.room.num_prompt_rows == 0:
            self.costs.refine_step(outcome.room.num_rows + num_drafted, situation.context, outcome.target_s)
        self._refine_drafters(outcome, situation)
        prefills_s = [self._prefill_s(*pair) for pair in zip(outcome.plans, outcome.offers, strict=True)]
        bill = make_bill(outcome, prefills_s, situation.steps_s, situation.plain_s, self.costs.common_factor)
        self._keep_times(outcome, bill)
        for index in range(len(outcome.sequences)):
            self._learn(outcome, index, bill)

    def _situate(self, sequences: list[Sequence], offers: list[Offer], room: StepRoom, num_extra: int) -> Situation:
        num_sequences = len(sequences)
        context = sum(len(sequence.token_ids) for sequence in sequences) / num_sequences
        plain_s = self.costs.step_s(num_sequences, context)
        self._speedup.start(plain_s)
        self._speedup_between_copies.start(plain_s)
        steps_s = self.costs.steps_s(room.num_rows, num_extra, context)
        overall_rate = self._speedup.speed_up * num_sequences / plain_s
        situation = Situation(
            step=self._step,
            num_sequences=num_sequences,
            context=context,
            steps_s=steps_s,
            row_s=early_row_s(steps_s),
            plain_s=plain_s,
            rate=self._speedup_between_copies.speed_up * num_sequences / plain_s,
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
        """Returns the probe budgets of all time and of each of these sequences."""
        return [self._chooser.budget, *(self._history(sequence).budget for sequence in sequences)]

    def _forget_ended(self) -> None:
        """Adds what drafters lost on the sequences that have ended, and drops their histories."""
        for sequence in [sequence for sequence in self._histories if sequence.is_finished]:
            history = self._histories.pop(sequence)
            self._times.lost_s += history.lost_s * self.costs.common_factor
            self._times.wasted_s += history.unrepaid_prefill_s * self.costs.common_factor

    def _prefill_s(self, plan: Plan, offer: Offer) -> float:
        """Returns the seconds that a plan's drafter needs to read a text that is new to it. Catching up with a text
        that it knows is part of its draft."""
        num_missed = offer.num_missed.get(plan.drafter, 0)
        return self.costs.catch_up_s(plan.drafter, num_missed) if num_missed > SMALL_CATCH_UP else 0.0

    def _refine_drafters(self, outcome: StepOutcome, situation: Situation) -> None:
        """Counts the passes of each drafter, and compares its time with the predicted time of those passes where it
        read little else."""
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
        """Compares the number of a drafter's passes with the number expected for its drafts, whose lengths by sequence
        are `sizes`. Sequences share passes."""
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
        self._keep_speedup(outcome, bill)

    def _keep_speedup(self, outcome: StepOutcome, bill: Bill) -> None:
        """Records the step of all sequences, and apart that of those that did not copy; without the prefill of whole
        texts, which is done once."""
        plain_step_s = self._situation.plain_s / len(outcome.sequences)
        plain_s = [len(verdict.committed) * plain_step_s for verdict in outcome.verdicts]
        costs_s = zip(bill.cost_s, bill.prefill_s, strict=True)
        spent_s = [plain_step_s + cost_s - prefill_s for cost_s, prefill_s in costs_s]
        self._speedup.record(sum(plain_s), sum(spent_s))
        others = [
            index
            for index, (plan, offer) in enumerate(zip(outcome.plans, outcome.offers, strict=True))
            if plan.drafter in offer.num_missed or plan.window < _COPY_LENGTH
        ]
        if others:
            self._speedup_between_copies.record(sum(plain_s[i] for i in others), sum(spent_s[i] for i in others))

    def _learn(self, outcome: StepOutcome, index: int, bill: Bill) -> None:
        """Learns from all drafts of one sequence, and from what they cost and saved."""
        history = self._history(outcome.sequences[index])
        plan, draft, committed = outcome.plans[index], outcome.drafts[index], outcome.verdicts[index].committed
        for free in outcome.offers[index].free_drafts:
            self._portfolio.learn_free(free, history.of(free.drafter), committed)
        if plan.window == 0:
            return
        own = history.of(plan.drafter)
        own.net_s += bill.saved_s[index]
        own.unrepaid_prefill_s = 0.0 if outcome.verdicts[index].path else own.unrepaid_prefill_s + bill.prefill_s[index]
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
            own.retry.record(bill.saved_s[index] > 0.0)
            for budget in self._budgets([outcome.sequences[index]]):
                budget.spent_s += max(0.0, -bill.saved_s[index])


def _count_ready(offers: list[Offer]) -> Counter[str]:
    """Returns for each drafter that runs a model how many sequences it has read."""
    return Counter(name for offer in offers for name, missed in offer.num_missed.items() if missed <= SMALL_CATCH_UP)
