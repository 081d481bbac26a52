"""`Bill`: what one sequence's draft cost and saved in one step, in the cost model's seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.controller.options import SMALL_CATCH_UP
from paceline.controller.prices import StepPrices
from paceline.controller.protocol import StepOutcome


@dataclass(frozen=True, slots=True)
class Bill:
    """What a draft cost and saved. `cost_s` is the time of its rows and of its drafter. `prefill_s` is the part of it
    in which the drafter read the text, once for all later drafts. `saved_s` is the time that plain decoding would have
    taken for the accepted tokens, minus `cost_s`."""

    cost_s: float
    prefill_s: float
    saved_s: float


def make_bills(outcome: StepOutcome, prices: StepPrices) -> Iterator[Bill]:
    """Yields the bill of each sequence. Every node costs the same for its row. The measured time of a model drafter is
    shared by the sequences that it drafted for. A free drafter always proposes, so all sequences share its time."""
    num_nodes = min(sum(map(len, outcome.drafts)), len(prices.steps_s) - 1)
    row_s = (prices.steps_s[num_nodes] - prices.steps_s[0]) / max(1, num_nodes)
    users = Counter(plan.drafter for plan in outcome.plans if plan.window > 0)
    columns = zip(outcome.plans, outcome.offers, outcome.drafts, outcome.verdicts, strict=True)
    for plan, offer, draft, verdict in columns:
        cost_s = row_s * len(draft)
        for name, measured_s in outcome.drafting_s.items():
            if not prices.costs.has_price(name):
                cost_s += measured_s / prices.costs.common_factor / prices.num_sequences
            elif name == plan.drafter and plan.window > 0:
                cost_s += measured_s / prices.costs.common_factor / users[name]
        num_missed = offer.num_missed.get(plan.drafter, 0)
        prefill_s = prices.costs.catch_up_s(plan.drafter, num_missed) if num_missed > SMALL_CATCH_UP else 0.0
        saved_s = len(verdict.path) * prices.plain_s / prices.num_sequences - cost_s
        yield Bill(cost_s, min(prefill_s, cost_s), saved_s)
