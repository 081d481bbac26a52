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
    """`cost_s` is the time of the draft's rows and of its drafter, of which `prefill_s` went into reading the text once
    for all drafts to come. `saved_s` is the time that plain decoding would have taken for the accepted tokens, minus
    the cost."""

    cost_s: float
    prefill_s: float
    saved_s: float


def make_bills(outcome: StepOutcome, prices: StepPrices) -> Iterator[Bill]:
    """Yields the bill of each sequence. Rows are paid by node. The sequences that a drafter drafted for share its
    measured time; all sequences share that of a free drafter, which always proposes."""
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
