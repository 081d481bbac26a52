"""`Verifier`: walks down each draft from its root, as far as the target itself would have gone.

At every node it samples the target's token, by the same rule as in plain decoding (sampling/sampler.py). If a child of
the node has this token, the child is accepted. If none has, the walk ends: the token is the recovered token, or after a
leaf the bonus token. A draft never chooses a token, so the committed tokens are those of plain decoding, for any
drafter and any shape of tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.core import Draft, Sequence, TokenLogprob, Verdict
from paceline.core.draft_tree import child_by_token
from paceline.sampling.constraints import Masks, fill_masks
from paceline.sampling.sampler import Logits, SampleQuery, Sampler
from paceline.sampling.sequence_sampler import SequenceSampler


@dataclass(slots=True)
class _Walk:
    """The walk of one sequence down its draft."""

    draft: Draft
    sampler: SequenceSampler
    first_row: int
    first_position: int
    first_place: int
    children: dict[tuple[int | None, int], int]
    path: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    row_hashes: list[str] = field(default_factory=list)
    error: str | None = None

    @property
    def node(self) -> int:
        """The current place of the walk: 0 at the root, 1 + i at node i of the draft."""
        return 1 + self.path[-1] if self.path else 0

    def query(self, masks: Masks) -> SampleQuery:
        """Returns the query for the target's token at the current place."""
        return SampleQuery(
            self.first_row + self.node,
            self.sampler.rows,
            self.first_position + len(self.token_ids),
            self.token_ids,
            self.sampler.num_logprobs,
            None if masks.bits is None else masks.rows[self.first_place + self.node],
        )

    def advance(self, token_id: int, logprob: TokenLogprob | None) -> bool:
        """Takes the target's token; returns whether a draft node has this token, so that the walk goes on."""
        child = self.children.get((self.path[-1] if self.path else None, token_id))
        self.token_ids.append(token_id)
        if logprob is not None:
            self.logprobs.append(logprob)
        if child is None:
            return False
        self.path.append(child)
        return True

    def fail(self, error: str) -> None:
        """Ends the walk at a row that has no token.

        At the root that is the sequence's error. Below the root the walk ends one node earlier, so the error comes up
        in a later step, as in plain decoding.
        """
        if self.path:
            self.path.pop()
        else:
            self.error = error

    def verdict(self) -> Verdict:
        """Returns the result of the walk."""
        return Verdict(
            path=tuple(self.path),
            token_ids=tuple(self.token_ids[:-1]),
            next_token=self.token_ids[-1] if self.token_ids else None,
            logprobs=tuple(self.logprobs),
            num_drafted=len(self.draft),
            drafter=self.draft.drafter,
            row_hashes=tuple(self.row_hashes[: len(self.token_ids)]),
            error=self.error,
        )


@dataclass(frozen=True, slots=True)
class Checks:
    """The sequences with their drafts, and the masks for the root and every node of each draft, draft after draft.

    All of this is prepared before the logits are there.
    """

    sequences: list[Sequence]
    drafts: list[Draft]
    samplers: list[SequenceSampler]
    masks: Masks


def prepare_checks(
    sequences: list[Sequence], drafts: list[Draft], samplers: list[SequenceSampler], vocab_size: int
) -> Checks:
    """Returns the checks of these drafts, one for each sequence."""
    if all(sampler.constraint is None for sampler in samplers):
        return Checks(sequences, drafts, samplers, Masks([], None))
    places = [
        (sampler.constraint, drafted)
        for sampler, draft in zip(samplers, drafts, strict=True)
        for drafted in ([], *([draft.token_ids[i] for i in draft.path_to(node)] for node in range(len(draft))))
    ]
    return Checks(sequences, drafts, samplers, fill_masks(vocab_size, places))


class Verifier:
    """Checks drafts against the target's logits, which `sampler` reads. With `has_row_hashes`, verdicts have a hash of
    the raw logits row of each committed token.
    """

    def __init__(self, sampler: Sampler, *, has_row_hashes: bool = False) -> None:
        self._sampler = sampler
        self._has_row_hashes = has_row_hashes

    def verify(self, checks: Checks, logits: Logits, first_rows: list[int]) -> list[Verdict]:
        """Returns one verdict for each sequence; changes nothing.

        `logits` (float32 [L, vocab_size]) has the row of sequence i's last token at `first_rows[i]`, and the row of
        node j of its draft at `first_rows[i] + 1 + j`. There is one sampling call for each depth, over all sequences
        whose walk goes on. Verdicts have log-probabilities if the request asks for them. A row of logits without a
        token is an error of its own sequence only.
        """
        walks: list[_Walk] = []
        place = 0
        for sequence, draft, sampler, row in zip(
            checks.sequences, checks.drafts, checks.samplers, first_rows, strict=True
        ):
            walks.append(_Walk(draft, sampler, row, len(sequence.token_ids), place, child_by_token(draft)))
            place += 1 + len(draft)
        alive = walks
        while alive:
            alive = self._descend(alive, logits, checks.masks)
        return [walk.verdict() for walk in walks]

    def _descend(self, walks: list[_Walk], logits: Logits, masks: Masks) -> list[_Walk]:
        """Samples one token for each walk; returns the walks that go on."""
        queries = [walk.query(masks) for walk in walks]
        if self._has_row_hashes:
            hashes = self._sampler.hash_rows(logits, [query.row for query in queries])
            for walk, row_hash in zip(walks, hashes, strict=True):
                walk.row_hashes.append(row_hash)
        going_on: list[_Walk] = []
        for walk, sampled in zip(walks, self._sampler.sample(logits, queries, masks.bits), strict=True):
            if sampled.token_id is None:
                walk.fail(sampled.failure or "the row has no token")
            elif walk.advance(sampled.token_id, sampled.logprob):
                going_on.append(walk)
        return going_on
