"""The `Controller` protocol: who drafts how many tokens in a step. `FixedController` always wants the same number.

Limits that come from KV memory and context are the scheduler's.
"""

from __future__ import annotations

from typing import Protocol

from paceline.core import Draft, Plan, Sequence, SpeculationMode, Verdict


class Controller(Protocol):
    """Spends a step's rows on drafts."""

    def plan(self, sequences: list[Sequence], free_drafts: list[Draft], spare_rows: int) -> list[Plan]:
        """One plan for each decoding sequence; window 0 is plain decoding. `free_drafts[i]` is what a free drafter
        proposes already (it can be taken by naming its drafter), `spare_rows` the bound of all windows' sum."""
        ...

    def observe(self, plans: list[Plan], verdicts: list[Verdict], step_time_s: float) -> None:
        """Shows what became of the plans (parallel lists) and how long the whole step took."""
        ...


class FixedController:
    """Wants `num_speculative_tokens` for every sequence: a free draft where there is one, else from `model_drafter`.

    A window never exceeds what the request allows (`speculation`) and can still use (`max_tokens`). Where rows are
    short, the windows are levelled from the top.
    """

    def __init__(self, num_speculative_tokens: int, model_drafter: str | None) -> None:
        self._num_speculative_tokens = num_speculative_tokens
        self._model_drafter = model_drafter

    def plan(self, sequences: list[Sequence], free_drafts: list[Draft], spare_rows: int) -> list[Plan]:
        """Plans as the class says."""
        wanted = [self._wanted(*pair) for pair in zip(sequences, free_drafts, strict=True)]
        windows = level([plan.window for plan in wanted], spare_rows)
        return [Plan(plan.drafter, window) for plan, window in zip(wanted, windows, strict=True)]

    def observe(self, plans: list[Plan], verdicts: list[Verdict], step_time_s: float) -> None:
        """Learns nothing."""

    def _wanted(self, sequence: Sequence, free_draft: Draft) -> Plan:
        limit = usable_window(sequence, self._num_speculative_tokens)
        if len(free_draft) > 0:
            return Plan(free_draft.drafter, min(limit, len(free_draft)))
        return Plan("none", 0) if self._model_drafter is None else Plan(self._model_drafter, limit)


def usable_window(sequence: Sequence, num_speculative_tokens: int) -> int:
    """The most draft tokens up to `num_speculative_tokens` that the request allows and can use: a step commits one
    token beyond them."""
    request = sequence.request
    if request.speculation.mode is SpeculationMode.OFF:
        return 0
    limits = [num_speculative_tokens]
    if request.speculation.max_window is not None:
        limits.append(request.speculation.max_window)
    if request.sampling.max_tokens is not None:
        limits.append(request.sampling.max_tokens - sequence.num_output_tokens - 1)
    return max(0, min(limits))


def level(wanted: list[int], available: int) -> list[int]:
    """At most what each wants, at most `available` in sum; who wants more than an even share gets the even share."""
    granted = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for rank, i in enumerate(order):
        granted[i] = min(wanted[i], max(0, available) // (len(wanted) - rank))
        available -= granted[i]
    return granted
