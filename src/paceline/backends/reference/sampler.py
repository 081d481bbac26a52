"""`ReferenceSampler`: the acceptance rule in numpy, written from its definition; tests check the native sampler by it.

The token of a row is `argmin E / p` over the processed distribution p, with exponential noise E keyed by (seed, choice
index, position, token id). Noise: Philox4x32-10 (Salmon et al., 2011). Everything is float64.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from paceline.core import Float32Array, SamplingParams, TokenLogprob
from paceline.sampling.sampler import SampledRow, SampleQuery, UInt32Array

Float64Array = npt.NDArray[np.float64]
UInt64Array = npt.NDArray[np.uint64]

_PHILOX_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK_32 = (1 << 32) - 1
_LOW = np.uint64(_MASK_32)
_SHIFT = np.uint64(32)


@dataclass(slots=True)
class ReferenceRowSampler:
    """One sequence: its parameters, the key of its noise, and the tokens that its penalties count."""

    params: SamplingParams
    seed: int
    choice_index: int
    prompt: frozenset[int]
    num_prompt_tokens: int
    banned: tuple[int, ...]
    output: Counter[int] = field(default_factory=Counter)

    def append(self, token_ids: Sequence[int]) -> None:
        """Counts tokens that were committed to the output."""
        self.output.update(token_ids)


class ReferenceSampler:
    """Samples one row after another."""

    def begin(
        self,
        params: SamplingParams,
        *,
        prompt_token_ids: Sequence[int],
        seed: int,
        choice_index: int = 0,
        banned_token_ids: Collection[int] = (),
    ) -> ReferenceRowSampler:
        """Returns the state of a sequence that has no output yet."""
        prompt = frozenset(prompt_token_ids)
        banned = tuple(sorted(banned_token_ids))
        return ReferenceRowSampler(params, seed, choice_index, prompt, len(prompt_token_ids), banned)

    def sample(
        self, logits: Float32Array, queries: Sequence[SampleQuery], masks: UInt32Array | None = None
    ) -> list[SampledRow]:
        """Returns one token for each query; `logits` is float32 [L, vocab_size]."""
        return [
            _sample_row(logits[query.row], query, None if masks is None else masks[query.mask_row])
            if query.mask_row is not None
            else _sample_row(logits[query.row], query, None)
            for query in queries
        ]

    def ban(self, logits: Float32Array, tokens: Sequence[tuple[int, int]]) -> None:
        """Sets the logits at these (row, token id) to minus infinity."""
        for row, token_id in tokens:
            logits[row, token_id] = -np.inf

    def scatter(self, logits: Float32Array, columns: npt.NDArray[np.int64], width: int) -> Float32Array:
        """Returns the logits in other columns."""
        rows = np.full((len(logits), width), -np.inf, np.float32)
        used = columns[: logits.shape[1]]
        rows[:, used] = logits[:, : len(used)]
        return rows

    def hash_rows(self, logits: Float32Array, rows: Sequence[int]) -> list[str]:
        """Returns a fingerprint of each row's bits."""
        return [hashlib.blake2b(logits[row].tobytes(), digest_size=8).hexdigest() for row in rows]


def _sample_row(row: Float32Array, query: SampleQuery, mask: UInt32Array | None) -> SampledRow:
    state = query.sampler
    assert isinstance(state, ReferenceRowSampler)
    failure = _find_fault(row)
    if failure is not None:
        return SampledRow(None, None, failure)
    output = state.output + Counter(query.drafted)
    logits = processed_logits(row, state.params, state.prompt, output)
    if query.position - state.num_prompt_tokens < state.params.min_tokens:
        logits[list(state.banned)] = -math.inf
    if mask is not None:
        logits[~allowed_tokens(mask, len(logits))] = -math.inf
    failure = _find_fault(logits)
    if failure is not None:
        return SampledRow(None, None, failure)
    token_id = draw(logits, state.params, noise(state.seed, state.choice_index, query.position, len(logits)))
    logprob = None if query.num_logprobs is None else _logprob(row, token_id, query.num_logprobs)
    return SampledRow(token_id, logprob, None)


def _find_fault(row: Float32Array | Float64Array) -> str | None:
    if np.isnan(row).any():
        return "a row of logits contains a NaN"
    return None if np.isfinite(row.max()) else "a row of logits leaves no token: its maximum is not finite"


def processed_logits(
    row: Float32Array, params: SamplingParams, prompt: Collection[int], output: Counter[int]
) -> Float64Array:
    """Returns the logits after penalties and bias, float64 [vocab_size]. The repetition penalty applies to tokens of
    prompt and output, the other penalties only to tokens of the output."""
    logits = row.astype(np.float64)
    seen = [token_id for token_id in {*prompt, *output} if token_id < len(logits)]
    for token_id in seen:
        penalty = params.repetition_penalty
        logits[token_id] = logits[token_id] / penalty if logits[token_id] > 0 else logits[token_id] * penalty
        if output[token_id]:
            logits[token_id] -= params.frequency_penalty * output[token_id] + params.presence_penalty
    for token_id, bias in params.logit_bias.items():
        logits[token_id] += bias
    return logits


def allowed_tokens(mask: UInt32Array, vocab_size: int) -> npt.NDArray[np.bool_]:
    """Returns which tokens a row of bitmasks allows; those beyond its words are not allowed."""
    bits = np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little")[:vocab_size]
    return np.pad(bits.astype(bool), (0, vocab_size - len(bits)))


def distribution(logits: Float64Array, params: SamplingParams) -> Float64Array:
    """Returns the distribution that temperature, top-k, top-p and min-p leave, float64 [vocab_size] that sums to 1."""
    weights = np.exp((logits - logits.max()) / params.temperature)
    order = np.lexsort((np.arange(len(weights)), -weights))
    kept = order[: params.top_k]
    if params.top_p < 1.0:
        mass = np.cumsum(weights[kept]) / weights[kept].sum()
        kept = kept[: max(1, int(np.searchsorted(mass, params.top_p) + 1))]
    kept = kept[weights[kept] >= params.min_p]
    result = np.zeros_like(weights)
    result[kept] = weights[kept]
    normalized: Float64Array = result / result.sum()
    return normalized


def draw(logits: Float64Array, params: SamplingParams, exponential: Float64Array) -> int:
    """Returns the token with the smallest noise / probability; ties go to the lower id. Temperature 0 is greedy."""
    if params.temperature == 0.0:
        return int(logits.argmax())
    probabilities = distribution(logits, params)
    with np.errstate(divide="ignore"):
        scores = np.where(probabilities > 0, exponential / probabilities, np.inf)
    return int(scores.argmin())


def noise(seed: int, choice_index: int, position: int, vocab_size: int) -> Float64Array:
    """Returns the exponential noise of each token, float64 [vocab_size]."""
    groups = np.arange(-(-vocab_size // 4), dtype=np.uint64)
    counter = (groups, position & _MASK_32, position >> 32, choice_index)
    words = philox(counter, (seed & _MASK_32, seed >> 32))
    bits = np.stack(words, axis=1).reshape(-1)[:vocab_size]
    uniform: Float64Array = (bits.astype(np.float64) + 0.5) / 2.0**32
    return -np.log1p(-uniform)


def philox(counter: tuple[UInt64Array | int, int, int, int], key: tuple[int, int]) -> list[UInt64Array]:
    """Returns the four words of Philox4x32-10 for each first word of the counter."""
    first = np.atleast_1d(np.asarray(counter[0], np.uint64))
    a, b, c, d = (np.broadcast_to(np.asarray(word, np.uint64), first.shape) for word in counter)
    for number in range(10):
        key0, key1 = (
            np.uint64((part + number * weyl) & _MASK_32) for part, weyl in zip(key, _PHILOX_WEYL, strict=True)
        )
        low, high = _PHILOX_MULTIPLIERS[0] * a, _PHILOX_MULTIPLIERS[1] * c
        a, b, c, d = (high >> _SHIFT) ^ b ^ key0, high & _LOW, (low >> _SHIFT) ^ d ^ key1, low & _LOW
    return [a, b, c, d]


def _logprob(row: Float32Array, token_id: int, num_top: int) -> TokenLogprob:
    """Returns the log-probabilities of the token and of the `num_top` most likely tokens in the raw distribution."""
    logits = row.astype(np.float64)
    maximum = logits.max()
    logprobs = logits - maximum - math.log(np.exp(logits - maximum).sum())
    order = np.lexsort((np.arange(len(logprobs)), -logprobs))[:num_top]
    top = [(int(found), float(np.float32(logprobs[found]))) for found in order]
    return TokenLogprob(token_id, float(np.float32(logprobs[token_id])), top)
