"""`Bill`: what the drafts of one step cost and saved, by sequence, in the cost model's seconds."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.controller.protocol import StepOutcome


@dataclass(frozen=True, slots=True)
class Bill:
    """`saved_s[i]` is what plain decoding would have taken for sequence i's accepted draft tokens, less what its draft
    cost, `cost_s[i]`, of which `prefill_s[i]` went into reading its text, once for all drafts to come. `wasted_s` is
    the cost, without reading, of the drafts of which nothing was accepted."""

    saved_s: list[float]
    cost_s: list[float]
    prefill_s: list[float]
    wasted_s: float

    @property
    def extra_s(self) -> float:
        """What all drafts cost."""
        return sum(self.cost_s)


def make_bill(
    outcome: StepOutcome, prefills_s: list[float], steps_s: list[float], plain_s: float, common_factor: float
) -> Bill:
    """The bill of one step, whose target pass takes `steps_s[n]` with n draft rows, and `plain_s` without any row but
    one for each sequence; `prefills_s` are the prices of the texts that were to be read.

    Rows are paid by node. A drafter's measured time, over `common_factor`, is shared by the sequences it drafted for;
    that of a free one, which always proposes, by all sequences.
    """
    num_sequences = len(outcome.sequences)
    num_nodes = sum(map(len, outcome.drafts))
    row_s = (steps_s[min(num_nodes, len(steps_s) - 1)] - steps_s[0]) / max(1, num_nodes)
    users = [plan.drafter if plan.window > 0 else None for plan in outcome.plans]
    asked = {name for offer in outcome.offers for name in offer.num_missed}
    saved_s: list[float] = []
    costs_s: list[float] = []
    for user, draft, verdict in zip(users, outcome.drafts, outcome.verdicts, strict=True):
        cost_s = row_s * len(draft)
        for name, measured_s in outcome.drafting_s.items():
            is_free = name not in asked
            if is_free or name == user:
                cost_s += measured_s / common_factor / (num_sequences if is_free else users.count(name))
        costs_s.append(cost_s)
        saved_s.append(len(verdict.path) * plain_s / num_sequences - cost_s)
    prefills_s = [min(pair) for pair in zip(prefills_s, costs_s, strict=True)]
    wasted_s = sum(
        cost_s - prefill_s
        for cost_s, prefill_s, verdict in zip(costs_s, prefills_s, outcome.verdicts, strict=True)
        if not verdict.path
    )
    return Bill(saved_s, costs_s, prefills_s, wasted_s)
