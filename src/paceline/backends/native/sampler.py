"""The acceptance rule's pure function: a native `RowSampler` for each sequence, one native call for many rows.

The token of a row is `argmin E / p` over the processed distribution p, with exponential noise E keyed by (seed, choice
index, position, token id); greedy is temperature 0 of the same function. Nothing here looks at drafts.
"""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass

import paceline._native as _native
from paceline.core import Float32Array, SamplingParams, Sequence, TokenLogprob
from paceline.core.errors import InvalidRequestError
from paceline.sampling import check_sampling_params

_SEED_MASK = (1 << 64) - 1


class RowSampler:
    """What the sampling of one sequence needs: parameters, noise key, and the token counts of its penalties.

    `banned_token_ids` cannot be sampled before `params.min_tokens` tokens were output. Presence and frequency penalties
    count output tokens, the repetition penalty prompt and output. Raises InvalidRequestError for a parameter out of
    its range.
    """

    def __init__(
        self,
        params: SamplingParams,
        *,
        vocab_size: int,
        prompt_token_ids: collections.abc.Sequence[int],
        seed: int,
        choice_index: int = 0,
        banned_token_ids: collections.abc.Collection[int] = (),
    ) -> None:
        check_sampling_params(params, vocab_size)
        banned = {token_id for token_id in banned_token_ids if 0 <= token_id < vocab_size}
        if params.min_tokens > 0 and len(banned) == vocab_size:
            raise InvalidRequestError(
                f"min_tokens is {params.min_tokens}, but every token may end the text", "min_tokens"
            )
        self.num_logprobs = params.num_logprobs
        self.native = _native.RowSampler(
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
            banned_token_ids=sorted(banned),
        )

    @classmethod
    def for_sequence(
        cls, sequence: Sequence, *, vocab_size: int, banned_token_ids: collections.abc.Collection[int] = ()
    ) -> RowSampler:
        """The sampler of a sequence as it is now; output that it already has (resumed tokens) is counted."""
        sampler = cls(
            sequence.request.sampling,
            vocab_size=vocab_size,
            prompt_token_ids=sequence.request.prompt_token_ids,
            seed=sequence.seed,
            choice_index=sequence.request.choice_index,
            banned_token_ids=banned_token_ids,
        )
        sampler.append(sequence.token_ids[sequence.num_prompt_tokens :])
        return sampler

    def append(self, token_ids: collections.abc.Sequence[int]) -> None:
        """Counts tokens that were committed to the output."""
        self.native.append(list(token_ids))


@dataclass(frozen=True, slots=True)
class SampledRows:
    """One token for each row; a log-probability (raw distribution, before processing) where one was asked for.

    A row with a NaN or with no token left has no token; `failures` says why, by its index.
    """

    token_ids: list[int | None]
    logprobs: list[TokenLogprob | None]
    failures: dict[int, str]


def sample_rows(
    logits: Float32Array,
    rows: list[int],
    samplers: list[RowSampler],
    positions: list[int],
    extra_token_ids: list[list[int]],
    *,
    num_logprobs: list[int | None],
    threads: _native.ThreadPool | None = None,
    instruction_set: str | None = None,
) -> SampledRows:
    """Samples row `rows[i]` of `logits` (float32 [L, vocab_size], C order) with `samplers[i]`, for all i in one call.

    `positions[i]` is the index in the sequence of the token being sampled, `extra_token_ids[i]` the tokens between the
    committed text and that position (they count as output). `num_logprobs[i]` None asks for no log-probability, n for
    the token's and for the n most likely tokens'. `threads` None means the calling thread alone; a result does not
    depend on them. Does not change the samplers; releases the GIL.
    """
    native_samplers = [sampler.native for sampler in samplers]
    token_ids, logprobs, failures = _native.sample_rows(
        logits, rows, native_samplers, positions, extra_token_ids, num_logprobs, threads, instruction_set
    )
    entries = [
        None if token_id is None or found is None else TokenLogprob(token_id, *found)
        for token_id, found in zip(token_ids, logprobs, strict=True)
    ]
    return SampledRows(token_ids, entries, failures)


def hash_rows(logits: Float32Array, rows: list[int]) -> list[str]:
    """A 64-bit fingerprint of each row's bits as 16 hexadecimal digits."""
    return [f"{value:016x}" for value in _native.hash_rows(logits, rows)]
