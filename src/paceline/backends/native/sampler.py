"""`NativeSampler`: the acceptance rule in the C++ core, one native call for many rows.

The token of a row is `argmin E / p` over the processed distribution p, with exponential noise E keyed by (seed, choice
index, position, token id). Temperature 0 is greedy. Nothing here looks at drafts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from paceline import _native
from paceline.core import Float32Array, SamplingParams, TokenLogprob
from paceline.sampling.sampler import SampledRow, SampleQuery, UInt32Array

_SEED_MASK = (1 << 64) - 1


class NativeSampler:
    """Samples in `threads` (None: only in the calling thread), and releases the GIL. Results do not depend on threads.

    `instruction_set` None takes the one that PACELINE_ISA names, or else the machine's best.
    """

    def __init__(self, threads: _native.ThreadPool | None = None, instruction_set: str | None = None) -> None:
        self._threads = threads
        self._instruction_set = instruction_set
        self._scattered = np.zeros((0, 0), np.float32)
        self._columns: npt.NDArray[np.int64] | None = None

    def begin(
        self,
        params: SamplingParams,
        *,
        prompt_token_ids: Sequence[int],
        seed: int,
        choice_index: int = 0,
        banned_token_ids: Collection[int] = (),
    ) -> _native.RowSampler:
        """Returns the state of a sequence that has no output yet."""
        return _native.RowSampler(
            list(prompt_token_ids),
            seed=seed & _SEED_MASK,
            choice_index=choice_index,
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            repetition_penalty=params.repetition_penalty,
            logit_bias=list(params.logit_bias.items()),
            min_tokens=params.min_tokens,
            banned_token_ids=sorted(banned_token_ids),
        )

    def sample(
        self, logits: Float32Array, queries: Sequence[SampleQuery], masks: UInt32Array | None = None
    ) -> list[SampledRow]:
        """Returns one token for each query; `logits` is float32 [L, vocab_size] in C order."""
        sampled = _native.sample_rows(logits, queries, masks, self._threads, self._instruction_set)
        return [
            SampledRow(token_id, None if found is None or token_id is None else TokenLogprob(token_id, *found), failure)
            for token_id, found, failure in sampled
        ]

    def ban(self, logits: Float32Array, tokens: Sequence[tuple[int, int]]) -> None:
        """Sets the logits at these (row, token id) to minus infinity."""
        for row, token_id in tokens:
            logits[row, token_id] = -np.inf

    def scatter(self, logits: Float32Array, columns: npt.NDArray[np.int64], width: int) -> Float32Array:
        """Returns the logits in other columns, in memory that the next call with the same columns overwrites."""
        if self._columns is not columns or len(self._scattered) < len(logits):
            self._columns = columns
            self._scattered = np.full((len(logits), width), -np.inf, np.float32)
        rows = self._scattered[: len(logits)]
        used = columns[: logits.shape[1]]
        for row, own in zip(rows, logits, strict=True):
            row[used] = own[: len(used)]
        return rows

    def hash_rows(self, logits: Float32Array, rows: Sequence[int]) -> list[str]:
        """Returns a fingerprint of each row's bits."""
        return [f"{value:016x}" for value in _native.hash_rows(logits, rows)]
