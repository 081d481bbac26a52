"""`TextStream`: turns the committed tokens of a sequence into text and decides after each token whether it ends.

It gets the tokens one at a time, in the order of commits, so text and finish reason do not depend on how many tokens a
step commits.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core import FinishReason, Request
from paceline.tokenizer import IncrementalDetokenizer, StopStringMatcher, Tokenizer


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a sequence ended. `stop_reason` is the stop string or the stop token id; None for all other reasons."""

    reason: FinishReason
    stop_reason: str | int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The effect of one token: the text that can be shown now, and the finish if it was the last token."""

    text: str
    finish: Finish | None = None


class TextStream:
    """The text and the stop tests of one sequence.

    No stop strings are looked for in the text of the first `min_tokens` tokens. An end-of-sequence token has no text.
    The text of a stop token is shown only with `include_stop_in_output`.
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
        """Whether the sequence has its maximum number of output tokens."""
        return self._num_tokens >= self._max_output_tokens

    def push(self, token_id: int) -> Progress:
        """Takes the next committed token. Nothing may be pushed after a `Progress` with a `finish`."""
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
        """Returns all text that was held back. If a stop string appears in it, the text ends at the stop string."""
        match = self._matcher.feed(text + self._detokenizer.flush())
        if match.matched is not None:
            return Progress(shown + match.text, Finish(FinishReason.STOP, match.matched))
        return Progress(shown + match.text + self._matcher.flush(), Finish(reason, stop_reason))
