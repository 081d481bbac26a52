"""`LogprobPlacer`: finds where each token of an answer begins in the text, and which tokens a client may see.

An engine holds back text that may become a stop string. If it becomes one, its tokens are not part of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core import Output, TokenLogprob
from paceline.tokenizer import IncrementalDetokenizer, Tokenizer


@dataclass(frozen=True, slots=True)
class PlacedLogprob:
    """A token with its log-probability and its place in the text.

    `top` has the bytes and log-probabilities of the most likely tokens at this position, likeliest first. `text_offset`
    is the index of the character in the answer's text at which the token begins. A token that begins inside a
    character has the offset of that character.
    """

    token: bytes
    logprob: float
    top: list[tuple[bytes, float]]
    text_offset: int


class LogprobPlacer:
    """Finds the places of one answer's tokens."""

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: list[int]) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = IncrementalDetokenizer(tokenizer, prompt_token_ids)
        self._held: list[PlacedLogprob] = []
        self._num_decoded = 0
        self._num_shown = 0

    def add(self, output: Output) -> list[PlacedLogprob]:
        """Takes an output and returns, in order, the tokens that belong to the text shown so far and are new."""
        for entry in output.logprobs or ():
            self._held.append(self._placed(entry))
            self._num_decoded += len(self._detokenizer.append(entry.token_id))
        self._num_shown += len(output.text)
        is_whole = output.finish_reason is not None and output.stop_reason is None
        num_ready = sum(is_whole or held.text_offset < self._num_shown for held in self._held)
        ready, self._held = self._held[:num_ready], self._held[num_ready:]
        return ready

    def _placed(self, entry: TokenLogprob) -> PlacedLogprob:
        top = [(self._tokenizer.token_bytes(token_id), logprob) for token_id, logprob in entry.top]
        return PlacedLogprob(self._tokenizer.token_bytes(entry.token_id), entry.logprob, top, self._num_decoded)
