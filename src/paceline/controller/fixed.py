"""`FixedController`: drafts the same number of tokens in every step; for comparisons and for `speculation: fixed`."""

from __future__ import annotations

from paceline.controller.accounting import SpeculationTimes
from paceline.controller.protocol import REASON_NO_DRAFT, REASON_NOT_ALLOWED, Offer, StepOutcome, StepRoom, level
from paceline.core import Plan, Sequence


class FixedController:
    """Plans a draft of `num_speculative_tokens` for every sequence. It takes the longest free draft. If there is none,
    the first of `model_drafters` that the request allows and that has room for the sequence drafts.

    A window is at most what the request allows (`speculation`) and can still use (`max_tokens`). If there are too few
    rows for all windows, the longest windows are shortened first.
    """

    def __init__(self, num_speculative_tokens: int, *model_drafters: str) -> None:
        self._num_speculative_tokens = num_speculative_tokens
        self._model_drafters = model_drafters
        self.times = SpeculationTimes()

    def plan(self, sequences: list[Sequence], offers: list[Offer], room: StepRoom) -> list[Plan]:
        """Returns one plan for each sequence, as the class describes."""
        wanted = [self._wanted(*pair) for pair in zip(sequences, offers, strict=True)]
        windows = level([plan.window for plan in wanted], room.spare_rows)
        return [plan.with_window(window) for plan, window in zip(wanted, windows, strict=True)]

    def observe(self, outcome: StepOutcome) -> None:
        """Adds the step to `times`. This controller learns nothing."""
        self.times.add(outcome.drafting_s, outcome.target_s)

    def _wanted(self, sequence: Sequence, offer: Offer) -> Plan:
        limit = min(sequence.usable_window(self._num_speculative_tokens), offer.max_window)
        allowed = sequence.request.speculation.drafters
        drafts = [draft for draft in offer.free_drafts if allowed is None or draft.drafter in allowed]
        longest = max(drafts, key=len, default=None)
        if longest is not None and len(longest) > 0:
            return Plan(longest.drafter, min(limit, len(longest)))
        for name in self._model_drafters:
            if name in offer.num_missed and (allowed is None or name in allowed):
                return Plan(name, limit)
        return Plan("none", 0, reason=REASON_NO_DRAFT if allowed is None else REASON_NOT_ALLOWED)
