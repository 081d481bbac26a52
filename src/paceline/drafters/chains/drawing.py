"""Samples the tokens of model drafters, and their second choices, by the target's rule with the target's noise.

A drafted token is therefore right whenever the same token has the highest perturbed score in both models. A constraint
on the output also holds for drafts. This module does not know which model made the logits.
"""

from __future__ import annotations

import math
from collections import abc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from typing import TypeVar

from paceline.core import Sequence
from paceline.drafters.chains.growing_draft import DraftToken, GrowingDraft
from paceline.sampling.constraints import fill_masks
from paceline.sampling.sampler import Logits, SampledRow, SampleQuery, Sampler, UInt32Array
from paceline.sampling.sequence_sampler import SequenceSampler


@dataclass(slots=True, kw_only=True)
class SequenceDraft:
    """The growing draft of one sequence. `sampler` is the target's. `known` are the guesses that the current pass reads
    after the draft's last token. If `is_forced`, the sequence's constraint leaves no other text than these guesses."""

    sequence: Sequence
    sampler: SequenceSampler
    growing: GrowingDraft
    known: list[int] = field(default_factory=list)
    is_forced: bool = False


AnyDraft = TypeVar("AnyDraft", bound=SequenceDraft)


@dataclass(frozen=True, slots=True)
class Drawer:
    """Samples draft tokens with the sampler of the target's backend. `vocab_size` is the target's."""

    sampler: Sampler
    vocab_size: int

    def draw(
        self,
        drafts: abc.Sequence[AnyDraft],
        logits: Logits,
        *,
        is_known: Callable[[int], bool] = lambda token_id: True,
    ) -> list[AnyDraft]:
        """Adds tokens to each draft from its rows of `logits`: one row, and one more for each guess that was read. A
        token that the target lacks ends the draft. Returns the drafts that need another pass."""
        rows = [
            (draft, [*draft.growing.token_ids, *draft.known[:number]])
            for draft in drafts
            for number in range(1 + len(draft.known))
        ]
        masks = fill_masks(self.vocab_size, [(draft.sampler.constraint, drafted) for draft, drafted in rows])
        queries = [
            SampleQuery(row, draft.sampler.rows, len(draft.sequence.token_ids) + len(drafted), drafted, 0, mask_row)
            for row, ((draft, drafted), mask_row) in enumerate(zip(rows, masks.rows, strict=True))
        ]
        tokens = self.draft_tokens(logits, queries, [draft.growing.may_branch for draft, _ in rows], masks.bits)
        pending = (_of_target(token, is_known) for token in tokens)
        return [
            draft
            for draft in drafts
            if draft.growing.push_all(_with_forced(draft, list(islice(pending, 1 + len(draft.known)))), draft.known)
        ]

    def draft_tokens(
        self,
        logits: Logits,
        queries: abc.Sequence[SampleQuery],
        wants_second: abc.Sequence[Callable[[float], bool]],
        masks: UInt32Array | None = None,
    ) -> list[DraftToken | None]:
        """Returns one token for each query, None if no token of its row is allowed.

        The confidence is the token's probability in the raw distribution. The second choice has the second highest
        perturbed score. It is sampled only if `wants_second` returns true for the first choice's confidence. Overwrites
        some logits.
        """
        tokens = _tokens(self.sampler.sample(logits, queries, masks))
        wanted = [
            (index, first)
            for index, first in enumerate(tokens)
            if first is not None and wants_second[index](first.confidence)
        ]
        if not wanted:
            return tokens
        self.sampler.ban(logits, [(queries[index].row, first.token_id) for index, first in wanted])
        seconds = _tokens(self.sampler.sample(logits, [queries[index] for index, _ in wanted], masks))
        for (index, first), second in zip(wanted, seconds, strict=True):
            if second is not None:
                share = second.confidence * max(0.0, 1.0 - first.confidence)
                tokens[index] = replace(first, second=DraftToken(second.token_id, share))
        return tokens


def _with_forced(draft: SequenceDraft, tokens: list[DraftToken | None]) -> list[DraftToken | None]:
    """Returns the tokens of one draft. Those that the constraint forces are certain, whatever the model thinks."""
    if not draft.is_forced:
        return tokens
    pairs = zip_longest(tokens, draft.known)
    return [
        DraftToken(token.token_id, 1.0) if token is not None and token.token_id == forced else token
        for token, forced in pairs
    ]


def _of_target(token: DraftToken | None, is_known: Callable[[int], bool]) -> DraftToken | None:
    if token is None or not is_known(token.token_id):
        return None
    if token.second is not None and not is_known(token.second.token_id):
        return replace(token, second=None)
    return token


def _tokens(sampled: abc.Sequence[SampledRow]) -> list[DraftToken | None]:
    return [
        None
        if row.token_id is None
        else DraftToken(row.token_id, math.exp(row.logprob.logprob) if row.logprob else 1.0)
        for row in sampled
    ]
