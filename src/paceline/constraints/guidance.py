"""`GuidanceKind`: the constraints of one engine. `llguidance` compiles their grammars and computes the masks."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer

from paceline.constraints.compile_worker import read_grammar
from paceline.constraints.grammars import guidance_grammar, refusal
from paceline.constraints.vocabulary import guidance_tokenizer
from paceline.core import Constraint
from paceline.machine.cores import num_usable_cores
from paceline.sampling.constraints import ConstraintState, MaskQuery
from paceline.sampling.sampler import UInt32Array
from paceline.tokenizer import Tokenizer

_BYTES_PER_FORCED_TOKEN = 16
_MASK_WORD_BYTES = 4


class GuidanceState:
    """One output within its form."""

    def __init__(self, matcher: LLMatcher, tokenizer: Tokenizer) -> None:
        self._matcher = matcher
        self._tokenizer = tokenizer
        self._has_ended = False
        self._is_lost = False

    @property
    def end_token_ids(self) -> frozenset[int]:
        """The tokens that end a generation."""
        return self._tokenizer.eos_token_ids

    def advance(self, token_ids: Sequence[int]) -> None:
        """Takes in committed tokens. After a token that the form does not allow (a client may resume with such a one),
        nothing is allowed any more."""
        for token_id in token_ids:
            if self._has_ended or token_id in self._tokenizer.eos_token_ids:
                self._has_ended = True
            elif not self._matcher.try_consume_tokens([token_id]):
                self._is_lost = True
                return

    def forced_token_ids(self, drafted: Sequence[int], limit: int) -> list[int]:
        """Returns the tokens in which the tokenizer would write the text that must follow, `limit` at most. The model
        may write the same text with other tokens."""
        matcher = self.after(drafted, {}) if limit > 0 else None
        if matcher is None:
            return []
        text = matcher.compute_ff_bytes()[: limit * _BYTES_PER_FORCED_TOKEN]
        return self._tokenizer.encode_within(text.decode("utf-8", "ignore"))[:limit]

    def after(self, drafted: Sequence[int], known: dict[tuple[int, ...], LLMatcher | None]) -> LLMatcher | None:
        """Returns the matcher after the output and `drafted`; None if that is not allowed or has ended. `known` has the
        matchers after other drafted tokens, and gets those that this call makes."""
        if self._has_ended or self._is_lost:
            return None
        matcher: LLMatcher | None = self._matcher
        for length in range(1, len(drafted) + 1):
            path = tuple(drafted[:length])
            if path not in known:
                known[path] = _next(matcher, path[-1])
            matcher = known[path]
        return matcher

    def ends_after(self, drafted: Sequence[int]) -> bool:
        """Returns whether the output has ended, or ends within `drafted`; only the end may follow then."""
        return not self._is_lost and (self._has_ended or not self._tokenizer.eos_token_ids.isdisjoint(drafted))


class GuidanceKind:
    """All kinds of constraints that `grammars` can write, for one engine.

    The first constraint prepares the vocabulary, which takes half a second. Each output has a matcher of its own:
    copies of one matcher share what they have computed, and also its failure. `begin` may be called from several
    threads; `fill` only from the engine's.
    """

    def __init__(self) -> None:
        self._vocabulary: LLTokenizer | None = None
        self._lock = threading.Lock()
        self._executor = LLExecutor(num_usable_cores())

    def begin(self, constraint: Constraint, tokenizer: Tokenizer) -> ConstraintState:
        """Returns the state of an output without tokens. Raises InvalidRequestError if the constraint cannot be
        compiled."""
        try:
            grammar = read_grammar(guidance_grammar(constraint))
        except ValueError as error:
            raise refusal(constraint, str(error)) from error
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = guidance_tokenizer(tokenizer)
        matcher = LLMatcher(self._vocabulary, grammar, log_level=0)
        if matcher.is_error():
            raise refusal(constraint, matcher.get_error())
        return GuidanceState(matcher, tokenizer)

    def fill(self, masks: UInt32Array, queries: Sequence[MaskQuery]) -> None:
        """Computes all masks in one call that releases the interpreter, those of several outputs in parallel."""
        known: dict[int, dict[tuple[int, ...], LLMatcher | None]] = {}
        wanted: list[tuple[LLMatcher, int]] = []
        for state, drafted, row in queries:
            assert isinstance(state, GuidanceState)
            matcher = state.after(drafted, known.setdefault(id(state), {}))
            if state.ends_after(drafted):
                _allow(masks[row], state.end_token_ids)
            elif matcher is not None:
                wanted.append((matcher, row))
        if wanted:
            num_rows, num_words = masks.shape
            self._executor.unsafe_compute_mask_ptr(wanted, masks.ctypes.data, num_words * _MASK_WORD_BYTES, num_rows)
            for matcher, row in wanted:
                if matcher.is_error():  # llguidance then allows the end of the output, as if it were complete
                    masks[row] = 0


def _next(matcher: LLMatcher | None, token_id: int) -> LLMatcher | None:
    """Returns a copy of the matcher after one more token; None if that token is not allowed."""
    if matcher is None:
        return None
    copy = matcher.deep_copy()
    return copy if copy.try_consume_tokens([token_id]) else None


def _allow(mask: UInt32Array, token_ids: Collection[int]) -> None:
    for token_id in token_ids:
        mask[token_id // 32] |= np.uint32(1 << token_id % 32)
