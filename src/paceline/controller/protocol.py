"""The `Controller` protocol: who drafts how many tokens in a step, and what it plans from.

Limits that come from KV memory and context are the scheduler's. `adaptive` decides by itself, `fixed` always drafts.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from paceline.controller.accounting import SpeculationTimes
from paceline.core import Draft, Plan, Sequence, Verdict
from paceline.core.draft_tree import cut

REASON_NOT_ALLOWED = "request"
REASON_NO_DRAFT = "no draft"


@dataclass(frozen=True, slots=True)
class Offer:
    """What drafters offer one sequence in this step: the drafts of the free ones, and for each other drafter that has
    room for it the number of tokens that it must read first. `max_window` is the most draft tokens."""

    max_window: int
    free_drafts: tuple[Draft, ...] = ()
    num_missed: Mapping[str, int] = field(default_factory=dict)

    def take(self, plan: Plan) -> Draft:
        """Returns the free draft that a plan names, cut to its window; empty where there is none."""
        named = (draft for draft in self.free_drafts if draft.drafter == plan.drafter)
        return cut(next(named, Draft()), plan.window)


@dataclass(frozen=True, slots=True)
class StepRoom:
    """The rows of a step before drafts: all of them, those of sequences that may not draft (prompts, above all), and
    how many more rows drafts may add."""

    num_rows: int
    num_prompt_rows: int
    spare_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What became of the plans (parallel lists). `drafting_s` is each drafter's time, `target_s` that of all the rest;
    `passes` are the rows of the passes of those drafters' models that count them.

    `drafts` are what the target was shown; a plan with a window may have an empty one.
    """

    sequences: list[Sequence]
    offers: list[Offer]
    plans: list[Plan]
    drafts: list[Draft]
    verdicts: list[Verdict]
    room: StepRoom
    drafting_s: Mapping[str, float]
    target_s: float
    passes: Mapping[str, abc.Sequence[int]] = field(default_factory=dict)


class Controller(Protocol):
    """Spends a step's rows on drafts."""

    @property
    def times(self) -> SpeculationTimes:
        """Where the time of all steps with plans went."""
        ...

    def plan(self, sequences: list[Sequence], offers: list[Offer], room: StepRoom) -> list[Plan]:
        """One plan for each decoding sequence; window 0 is plain decoding. A free draft is taken by naming its
        drafter. The sum of all windows is at most `room.spare_rows`."""
        ...

    def observe(self, outcome: StepOutcome) -> None:
        """Shows what became of the plans of one step."""
        ...


def level(wanted: list[int], available: int) -> list[int]:
    """At most what each wants, at most `available` in sum; who wants more than an even share gets the even share."""
    granted = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for rank, i in enumerate(order):
        granted[i] = min(wanted[i], max(0, available) // (len(wanted) - rank))
        available -= granted[i]
    return granted
