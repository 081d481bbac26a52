"""The interface of samplers, which draw tokens from rows of logits; each backend has one.

All of them follow the acceptance rule, which docs/architecture.md describes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from paceline.core import SamplingParams, TokenLogprob

UInt32Array = npt.NDArray[np.uint32]
Logits = Any
"""Rows of logits [rows, vocab_size], wherever a backend keeps them. Only that backend's sampler reads them; other code
may take their length."""


class RowSampler(Protocol):
    """One sequence's parameters, noise key and token counts, in the form that the backend's sampler reads."""

    def append(self, token_ids: Sequence[int]) -> None:
        """Counts tokens that were committed to the output."""
        ...


class SampleQuery(NamedTuple):
    """Asks for the token of row `row` of some logits.

    `position` is the index that the sampled token has in the sequence. `drafted` has the tokens between the committed
    text and that position; they count as output. With `num_logprobs` n, the log-probabilities of the sampled token and
    of the n most likely tokens are returned; with None, no log-probability is. `mask_row` is the row of the bitmasks
    that says which tokens are allowed (None: all of them).
    """

    row: int
    sampler: RowSampler
    position: int
    drafted: Sequence[int] = ()
    num_logprobs: int | None = None
    mask_row: int | None = None


class SampledRow(NamedTuple):
    """The token of one row, with its log-probability (raw distribution, before processing) where it was asked for.

    `token_id` is None if the row contains a NaN or if no token is left; `failure` then says why.
    """

    token_id: int | None
    logprob: TokenLogprob | None
    failure: str | None


class Sampler(Protocol):
    """Draws tokens from the logits of its backend's models."""

    def begin(
        self,
        params: SamplingParams,
        *,
        prompt_token_ids: Sequence[int],
        seed: int,
        choice_index: int = 0,
        banned_token_ids: Collection[int] = (),
    ) -> RowSampler:
        """Returns the state of a sequence that has no output yet. `banned_token_ids` cannot be sampled before
        `params.min_tokens` tokens were output."""
        ...

    def sample(
        self, logits: Logits, queries: Sequence[SampleQuery], masks: UInt32Array | None = None
    ) -> list[SampledRow]:
        """Returns one token for each query; changes neither logits nor the sequences' states.

        Row m of `masks` [masks, words] allows token i where bit i % 32 of word i // 32 is set.
        """
        ...

    def ban(self, logits: Logits, tokens: Sequence[tuple[int, int]]) -> None:
        """Sets the logits at these (row, token id) to minus infinity, so that the next most likely token is sampled."""
        ...

    def scatter(self, logits: Logits, columns: npt.NDArray[np.int64], width: int) -> Logits:
        """Returns rows of `width` logits: column `columns[i]` holds column i of `logits`, and every other column holds
        minus infinity. Columns of `logits` beyond the length of `columns` are left out. The result is valid until the
        next call."""
        ...

    def hash_rows(self, logits: Logits, rows: Sequence[int]) -> list[str]:
        """Returns a fingerprint of each row's bits, 16 hexadecimal digits."""
        ...
