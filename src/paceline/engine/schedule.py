"""`Schedule`: which rows of which sequences make up one step; the scheduler's answer, read by everything after it."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core import Sequence
from paceline.engine.generation import Generation


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """One sequence's share of a step: its next `num_rows` uncomputed tokens, and KV slots for `max_window` draft nodes
    behind its last token.

    `reaches_end`: the rows include the last token, so that the next one can be sampled.
    """

    generation: Generation
    num_rows: int
    reaches_end: bool
    max_window: int

    @property
    def sequence(self) -> Sequence:
        """The plain sequence."""
        return self.generation.sequence


@dataclass(frozen=True, slots=True)
class Schedule:
    """One step: sequences in order of age, and how many rows drafts may add to it."""

    scheduled: list[ScheduledSequence]
    spare_rows: int

    @property
    def num_rows(self) -> int:
        """Rows without drafts."""
        return sum(item.num_rows for item in self.scheduled)

    @property
    def num_prompt_rows(self) -> int:
        """Rows of sequences that may not draft: prompts, above all."""
        return sum(item.num_rows for item in self.scheduled if item.max_window == 0)

    @property
    def drafting(self) -> list[ScheduledSequence]:
        """Those that may have a draft."""
        return [item for item in self.scheduled if item.max_window > 0]

    @property
    def sampled(self) -> list[ScheduledSequence]:
        """Those that get a verdict; they include the drafting ones."""
        return [item for item in self.scheduled if item.reaches_end]
