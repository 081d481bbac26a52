"""The `Controller` protocol, with its inputs: a controller plans which drafter drafts how many tokens in a step.

The scheduler enforces the limits of KV memory and context. `adaptive` decides from measurements, and `fixed` drafts
the same number of tokens in every step.
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
    """What drafters offer one sequence in this step. `free_drafts` are the drafts of the free drafters. `num_missed`
    has an entry for each model drafter that has room for the sequence: the number of tokens that it must read before it
    can draft. `max_window` is the most draft tokens."""

    max_window: int
    free_drafts: tuple[Draft, ...] = ()
    num_missed: Mapping[str, int] = field(default_factory=dict)

    def take(self, plan: Plan) -> Draft:
        """Returns the free draft of the plan's drafter, cut to the plan's window, or an empty draft."""
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
    """The results of the plans of one step. The lists have one entry for each sequence.

    `drafts` are the drafts that the target checked; a plan with a window may have an empty draft. `drafting_s` is the
    time of each drafter, and `target_s` is the time of the rest of the step. For each drafter that counts the passes of
    its model, `passes` has the number of rows of each pass.
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
    """Decides for which drafts the rows of a step are used."""

    @property
    def times(self) -> SpeculationTimes:
        """What the time of all steps with plans was spent on."""
        ...

    def plan(self, sequences: list[Sequence], offers: list[Offer], room: StepRoom) -> list[Plan]:
        """Returns one plan for each decoding sequence. Window 0 is plain decoding. A plan takes a free draft by naming
        its drafter. The sum of all windows is at most `room.spare_rows`."""
        ...

    def observe(self, outcome: StepOutcome) -> None:
        """Gives the controller the results of the plans of one step, so that it can learn from them."""
        ...


def level(wanted: list[int], available: int) -> list[int]:
    """Returns windows of at most `wanted`, with a sum of at most `available`. The largest windows are reduced first."""
    granted = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for rank, i in enumerate(order):
        granted[i] = min(wanted[i], max(0, available) // (len(wanted) - rank))
        available -= granted[i]
    return granted
