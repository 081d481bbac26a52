"""`Verifier`: walks each draft down from its root as far as the target itself would have gone.

At every node the target's token is sampled by its own rule (models/sampling.py). If a child of the node carries it,
the child is accepted; if not, it is the recovered token, or after a leaf the bonus token. No draft ever chooses a
token, so the committed tokens are those of plain decoding, whoever proposed and whatever the tree's shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.backends.native.model import ThreadPool
from paceline.backends.native.sampler import RowSampler, hash_rows, sample_rows
from paceline.core import Draft, Float32Array, Sequence, TokenLogprob, Verdict
from paceline.core.draft_tree import child_by_token


@dataclass(slots=True)
class _Walk:
    """One sequence's way down its draft."""

    draft: Draft
    sampler: RowSampler
    first_row: int
    first_position: int
    children: dict[tuple[int | None, int], int]
    path: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    row_hashes: list[str] = field(default_factory=list)
    error: str | None = None

    @property
    def row(self) -> int:
        """The row of logits where the walk stands."""
        return self.first_row + 1 + self.path[-1] if self.path else self.first_row

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


class Verifier:
    """Checks drafts against the target's logits. With `has_row_hashes`, verdicts carry a hash of the raw logits row of
    each committed token. `threads` sample, or None the calling thread alone; `instruction_set` None is the machine's
    best.
    """

    def __init__(
        self,
        *,
        has_row_hashes: bool = False,
        threads: ThreadPool | None = None,
        instruction_set: str | None = None,
    ) -> None:
        self._has_row_hashes = has_row_hashes
        self._threads = threads
        self._instruction_set = instruction_set

    def verify(
        self,
        sequences: list[Sequence],
        drafts: list[Draft],
        logits: Float32Array,
        first_rows: list[int],
        samplers: list[RowSampler],
    ) -> list[Verdict]:
        """One verdict for each sequence. `logits` (float32 [L, vocab_size]) has the row of sequence i's last token at
        `first_rows[i]` and that of its draft's node j at `first_rows[i] + 1 + j`.

        One sampling call for each depth over all sequences still on a draft. Changes nothing. Log-probabilities are
        given where the request asks for them. A row of logits that has no token is its own sequence's error alone.
        """
        walks = [
            _Walk(draft, sampler, first_row, len(sequence.token_ids), child_by_token(draft))
            for sequence, draft, first_row, sampler in zip(sequences, drafts, first_rows, samplers, strict=True)
        ]
        alive = walks
        while alive:
            alive = self._descend(alive, logits)
        return [walk.verdict() for walk in walks]

    def _descend(self, walks: list[_Walk], logits: Float32Array) -> list[_Walk]:
        """Samples one token for each walk; returns those that go on."""
        rows = [walk.row for walk in walks]
        if self._has_row_hashes:
            for walk, row_hash in zip(walks, hash_rows(logits, rows), strict=True):
                walk.row_hashes.append(row_hash)
        sampled = sample_rows(
            logits,
            rows,
            [walk.sampler for walk in walks],
            [walk.first_position + len(walk.token_ids) for walk in walks],
            [walk.token_ids for walk in walks],
            num_logprobs=[walk.sampler.num_logprobs for walk in walks],
            threads=self._threads,
            instruction_set=self._instruction_set,
        )
        for index, failure in sampled.failures.items():
            walks[index].fail(failure)
        return [
            walk
            for walk, token_id, logprob in zip(walks, sampled.token_ids, sampled.logprobs, strict=True)
            if token_id is not None and walk.advance(token_id, logprob)
        ]
