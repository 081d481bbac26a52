"""`Verifier`: walks each draft down from its root as far as the target itself would have gone.

At every node the target's token is sampled by its own rule (sampling/sampler.py). If a child of the node carries it,
the child is accepted; if not, it is the recovered token, or after a leaf the bonus token. No draft ever chooses a
token, so the committed tokens are those of plain decoding, whoever proposed and whatever the tree's shape.
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
    """One sequence's way down its draft."""

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
        """Where the walk stands: 0 at the root, 1 + i at node i of the draft."""
        return 1 + self.path[-1] if self.path else 0

    def query(self, masks: Masks) -> SampleQuery:
        """Asks for the target's token where the walk stands."""
        return SampleQuery(
            self.first_row + self.node,
            self.sampler.rows,
            self.first_position + len(self.token_ids),
            self.token_ids,
            self.sampler.num_logprobs,
            None if masks.bits is None else masks.rows[self.first_place + self.node],
        )

    def advance(self, token_id: int, logprob: TokenLogprob | None) -> bool:
        """Takes the target's token; returns whether a draft node carries it, so that the walk goes on."""
        child = self.children.get((self.path[-1] if self.path else None, token_id))
        self.token_ids.append(token_id)
        if logprob is not None:
            self.logprobs.append(logprob)
        if child is None:
            return False
        self.path.append(child)
        return True

    def fail(self, error: str) -> None:
        """Ends at a row that has no token: below the root by standing still before it, as plain decoding would."""
        if self.path:
            self.path.pop()
        else:
            self.error = error

    def verdict(self) -> Verdict:
        """What the walk found."""
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
    """Some sequences with their drafts, and the masks at the root and at every node of each draft, one draft after
    another. All of it is known before the logits are."""

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
    """Checks drafts against the target's logits, which `sampler` reads. With `has_row_hashes`, verdicts carry a hash of
    the raw logits row of each committed token.
    """

    def __init__(self, sampler: Sampler, *, has_row_hashes: bool = False) -> None:
        self._sampler = sampler
        self._has_row_hashes = has_row_hashes

    def verify(self, checks: Checks, logits: Logits, first_rows: list[int]) -> list[Verdict]:
        """One verdict for each sequence. `logits` (float32 [L, vocab_size]) has the row of sequence i's last token at
        `first_rows[i]` and that of its draft's node j at `first_rows[i] + 1 + j`.

        One sampling call for each depth over all sequences still on a draft. Changes nothing. Log-probabilities are
        given where the request asks for them. A row of logits that has no token is its own sequence's error alone.
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
        """Samples one token for each walk; returns those that go on."""
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
