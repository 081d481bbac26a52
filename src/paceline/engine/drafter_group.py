"""`DrafterGroup`: tells the engine's drafters which sequences run, asks them for drafts, and removes those that fail.

A drafter can cost time but cannot make a request fail. If it raises an exception or breaks its contract, the error is
logged and the drafter is switched off.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral

from paceline.controller import Offer
from paceline.core import Draft, Plan, Sequence, Verdict
from paceline.core.draft_tree import best_first, cut
from paceline.drafters.protocol import Drafter, Proposals

EMPTY_DRAFT = Draft()

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class DraftingCosts:
    """The costs of drafting in one step: the seconds of each drafter and, for drafters that count the passes of their
    model, the rows of each pass."""

    seconds: dict[str, float] = field(default_factory=dict)
    pass_rows: dict[str, list[int]] = field(default_factory=dict)

    def add(self, drafter: str, seconds: float, proposals: Proposals) -> None:
        """Adds the costs of one call of a drafter."""
        self.seconds[drafter] = self.seconds.get(drafter, 0.0) + seconds
        if proposals.pass_rows is not None:
            self.pass_rows[drafter] = proposals.pass_rows


class DrafterGroup:
    """The drafters by name. Free drafters propose before the controller plans. The others propose only if a plan names
    them. The target's token ids are below `vocab_size`."""

    def __init__(self, drafters: Iterable[Drafter], vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._drafters = {drafter.name: drafter for drafter in drafters}
        self._followed: dict[Sequence, None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the drafters that have not failed."""
        return tuple(self._drafters)

    def follow(self, running: list[Sequence]) -> None:
        """Calls `begin` for sequences that are new in `running`, and `end` for those that are no longer in it."""
        current = dict.fromkeys(running)
        if current.keys() == self._followed.keys():
            return
        gone = [sequence for sequence in self._followed if sequence not in current]
        new = [sequence for sequence in current if sequence not in self._followed]
        self._followed = current
        for drafter in list(self._drafters.values()):
            self._guard(drafter, partial(_exchange, drafter, gone, new))

    def offers(self, sequences: list[Sequence], windows: list[int], costs: DraftingCosts) -> list[Offer]:
        """Returns one offer for each sequence, within its window. It has the drafts of the free drafters, with the most
        likely nodes of a tree first. For each other drafter that has room for the sequence, it has the number of tokens
        that this drafter must still read. Adds to `costs`."""
        if not sequences:
            return []
        drafts: list[list[Draft]] = [[] for _ in sequences]
        missed: list[dict[str, int]] = [{} for _ in sequences]
        for drafter in list(self._drafters.values()):
            if drafter.is_free:
                plans = [Plan(drafter.name, window) for window in windows]
                for own, draft in zip(drafts, self._propose(drafter, sequences, plans, costs), strict=True):
                    if len(draft) > 0:
                        own.append(best_first(draft))
                continue
            for counts, count in zip(missed, self._num_missed(drafter, sequences), strict=True):
                if count is not None:
                    counts[drafter.name] = count
        return [Offer(window, tuple(own), counts) for window, own, counts in zip(windows, drafts, missed, strict=True)]

    def propose(
        self, sequences: list[Sequence], plans: list[Plan], offers: list[Offer], costs: DraftingCosts
    ) -> list[Draft]:
        """Returns the planned drafts. A plan gets the free draft that it names, cut to its window, or a new draft from
        the model drafter that it names. Adds to `costs`."""
        drafts = [offer.take(plan) for offer, plan in zip(offers, plans, strict=True)]
        for drafter in [drafter for drafter in self._drafters.values() if not drafter.is_free]:
            indices = [i for i, plan in enumerate(plans) if plan.drafter == drafter.name and plan.window > 0]
            chosen = self._propose(drafter, [sequences[i] for i in indices], [plans[i] for i in indices], costs)
            for index, draft in zip(indices, chosen, strict=True):
                drafts[index] = draft
        return drafts

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:
        """Gives every drafter the verdicts of the sequences that are not finished. Their tokens are committed."""
        for drafter in list(self._drafters.values()):
            self._guard(drafter, partial(drafter.observe, sequences, verdicts))

    def _num_missed(self, drafter: Drafter, sequences: list[Sequence]) -> list[int | None]:
        counts: list[int | None] = []
        self._guard(drafter, lambda: counts.extend([drafter.num_missed(sequence) for sequence in sequences]))
        return counts or [None] * len(sequences)

    def _propose(
        self, drafter: Drafter, sequences: list[Sequence], plans: list[Plan], costs: DraftingCosts
    ) -> list[Draft]:
        if not sequences:
            return []
        drafts: list[Draft] = []

        def propose() -> None:
            start_s = time.perf_counter()
            proposals = drafter.propose(sequences, plans)
            costs.add(drafter.name, time.perf_counter() - start_s, proposals)
            self._check(drafter, proposals.drafts, len(sequences))
            drafts[:] = [cut(draft, plan.window) for draft, plan in zip(proposals.drafts, plans, strict=True)]

        self._guard(drafter, propose)
        return drafts or [EMPTY_DRAFT] * len(sequences)

    def _check(self, drafter: Drafter, drafts: list[Draft], num_sequences: int) -> None:
        """Raises ValueError for proposals that break the contract of `Drafter.propose`."""
        if len(drafts) != num_sequences:
            raise ValueError(f"it returned {len(drafts)} drafts for {num_sequences} sequences")
        for draft in drafts:
            if not draft.token_ids:
                continue
            if not all(_is_integer(token_id) and 0 <= token_id < self._vocab_size for token_id in draft.token_ids):
                raise ValueError(f"it drafted a token that is not one of the target's {self._vocab_size}")
            if draft.drafter != drafter.name or not draft.is_tree:
                raise ValueError("its draft has another drafter's name, or is not a tree with confidences from 0 to 1")

    def _guard(self, drafter: Drafter, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            _logger.exception("drafter %s failed and is switched off", drafter.name)
            del self._drafters[drafter.name]


def _is_integer(value: object) -> bool:
    return type(value) is int or isinstance(value, Integral)


def _exchange(drafter: Drafter, gone: list[Sequence], new: list[Sequence]) -> None:
    for sequence in gone:
        drafter.end(sequence)
    for sequence in new:
        drafter.begin(sequence)
