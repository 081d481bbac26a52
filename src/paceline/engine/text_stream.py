"""`TextStream`: turns one sequence's committed tokens into text and decides, token by token, when it ends.

Because it sees tokens in commit order and one at a time, its text and finish reason cannot depend on how many tokens
a step committed.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core import FinishReason, Request
from paceline.tokenizer import IncrementalDetokenizer, StopStringMatcher, Tokenizer


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a sequence ended; `stop_reason` is the stop string or stop token id, None for end-of-sequence or length."""

    reason: FinishReason
    stop_reason: str | int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What one token brought: text that is safe to show, and the end if this was the last token."""

    text: str
    finish: Finish | None = None


class TextStream:
    """Text and stop tests of one sequence.

    The text of the first `min_tokens` tokens is shown without looking for stop strings in it. An end-of-sequence token
    has no text; a stop token's text is shown only with `include_stop_in_output`.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer, max_output_tokens: int) -> None:
        sampling = request.sampling
        self._detokenizer = IncrementalDetokenizer(tokenizer, request.prompt_token_ids)
        self._matcher = StopStringMatcher(sampling.stop, sampling.include_stop_in_output)
        self._eos_token_ids = frozenset() if sampling.ignore_eos else tokenizer.eos_token_ids
        self._stop_token_ids = frozenset(sampling.stop_token_ids)
        self._shows_stop = sampling.include_stop_in_output
        self._min_tokens = sampling.min_tokens
        self._max_output_tokens = max_output_tokens
        self._num_tokens = 0

    @property
    def is_full(self) -> bool:
        """Whether no token may follow for want of room."""
        return self._num_tokens >= self._max_output_tokens

    def push(self, token_id: int) -> Progress:
        """Takes the next committed token; after a `Progress` with `finish` nothing may be pushed."""
        self._num_tokens += 1
        if self._num_tokens > self._min_tokens:
            if token_id in self._eos_token_ids:
                return self._end(FinishReason.STOP)
            if token_id in self._stop_token_ids:
                text = self._detokenizer.append(token_id) if self._shows_stop else ""
                return self._end(FinishReason.STOP, text, token_id)
        return self._push_text(self._detokenizer.append(token_id))

    def _push_text(self, text: str) -> Progress:
        if self._num_tokens > self._min_tokens:
            match = self._matcher.feed(text)
            if match.matched is not None:
                return Progress(match.text, Finish(FinishReason.STOP, match.matched))
            text = match.text
        return self._end(FinishReason.LENGTH, shown=text) if self.is_full else Progress(text)

    def _end(
        self, reason: FinishReason, text: str = "", stop_reason: int | None = None, *, shown: str = ""
    ) -> Progress:
        """Releases all text that was held back; a stop string that only this completes still ends the text."""
        match = self._matcher.feed(text + self._detokenizer.flush())
        if match.matched is not None:
            return Progress(shown + match.text, Finish(FinishReason.STOP, match.matched))
        return Progress(shown + match.text + self._matcher.flush(), Finish(reason, stop_reason))
