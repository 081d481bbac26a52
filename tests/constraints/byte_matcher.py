"""Reads texts with a constraint byte by byte, as a model with a token for each byte would write them."""

from __future__ import annotations

import numpy as np
from llguidance import LLMatcher

from paceline.constraints.compile_worker import byte_tokenizer, read_grammar
from paceline.constraints.grammars import guidance_grammar
from paceline.core import Constraint

_NUM_BYTES = 256


class ByteMatcher:
    """A constraint, and how far texts may go in it."""

    def __init__(self, constraint: Constraint) -> None:
        grammar = read_grammar(guidance_grammar(constraint))
        self._matcher = LLMatcher(byte_tokenizer(), grammar, log_level=0)
        assert not self._matcher.is_error(), self._matcher.get_error()

    def allows(self, text: str) -> bool:
        """Returns whether the output may be this text and end there."""
        matcher = self._matcher.deep_copy()
        data = list(text.encode())
        return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()

    def num_allowed(self, text: str) -> int:
        """Returns how many bytes of the text may be written."""
        return int(self._matcher.deep_copy().try_consume_tokens(list(text.encode())))

    def next_bytes(self, text: str) -> bytes:
        """Returns the bytes that may follow the text."""
        matcher = self._matcher.deep_copy()
        matcher.try_consume_tokens(list(text.encode()))
        mask = np.zeros(_NUM_BYTES // 32 + 1, np.uint32)
        matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        return bytes(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[:_NUM_BYTES]).tolist())
