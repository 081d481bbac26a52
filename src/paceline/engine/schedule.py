"""`Schedule`: which rows of which sequences make up one step; the scheduler's answer, read by everything after it."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core import Sequence
from paceline.engine.request_state import RequestState


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """One sequence's share of a step: its next `num_rows` uncomputed tokens, and KV slots for `max_window` draft nodes
    behind its last token.

    `reaches_end`: the rows include the last token, so that the next one can be sampled.
    """

    state: RequestState
    num_rows: int
    reaches_end: bool
    max_window: int

    @property
    def sequence(self) -> Sequence:
        """The plain sequence."""
        return self.state.sequence


@dataclass(frozen=True, slots=True)
class Schedule:
    """One step: sequences in order of age, and how many rows drafts may add to it.

    `drafting` are those that may have a draft, `sampled` those that get a verdict, the drafting ones among them.
    `num_rows` counts rows without drafts, `num_prompt_rows` those of sequences that may not draft: prompts, above all.
    """

    scheduled: list[ScheduledSequence]
    drafting: list[ScheduledSequence]
    sampled: list[ScheduledSequence]
    num_rows: int
    num_prompt_rows: int
    spare_rows: int

    @classmethod
    def of(cls, scheduled: list[ScheduledSequence], max_rows: int) -> Schedule:
        """The step of these sequences, which may have `max_rows` with drafts."""
        drafting = [item for item in scheduled if item.max_window > 0]
        sampled = [item for item in scheduled if item.reaches_end]
        num_rows = sum(item.num_rows for item in scheduled)
        num_drafting_rows = sum(item.num_rows for item in drafting)
        return cls(scheduled, drafting, sampled, num_rows, num_rows - num_drafting_rows, max(0, max_rows - num_rows))
