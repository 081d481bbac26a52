"""`LogprobPlacer`: finds where each token of an answer begins in the text, and which tokens a client may see.

An engine holds back text that may become a stop string. If it becomes one, its tokens are not part of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core import Output
from paceline.tokenizer import IncrementalDetokenizer, Tokenizer


@dataclass(frozen=True, slots=True)
class PlacedLogprob:
    """A token with its log-probability (None: it is the first token of the prompt) and its place in the text.

    `top` has the bytes and log-probabilities of the most likely tokens at this position, likeliest first. `text_offset`
    is the index of the character in the answer's text at which the token begins. A token that begins inside a
    character has the offset of that character. `is_drafted` says that a draft had guessed the token.
    """

    token: bytes
    logprob: float | None
    top: list[tuple[bytes, float]]
    text_offset: int
    is_drafted: bool = False


class LogprobPlacer:
    """Finds the places of one answer's tokens."""

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: list[int], *, has_prompt: bool = False) -> None:
        """With `has_prompt`, the answer begins with the prompt, whose tokens have log-probabilities too."""
        self._tokenizer = tokenizer
        self._detokenizer = IncrementalDetokenizer(tokenizer, [] if has_prompt else prompt_token_ids)
        self._prompt_token_ids = prompt_token_ids if has_prompt else []
        self._held: list[PlacedLogprob] = []
        self._num_decoded = 0
        self._num_shown = 0

    def add(self, output: Output, num_accepted: int = 0) -> list[PlacedLogprob]:
        """Takes an output, whose first `num_accepted` tokens a draft had guessed. Returns, in order, the tokens that
        belong to the text shown so far and are new."""
        if output.prompt_logprobs is not None and self._prompt_token_ids:
            self._hold(self._prompt_token_ids[0], None, [])
            for entry in output.prompt_logprobs:
                self._hold(entry.token_id, entry.logprob, entry.top)
            self._num_shown = self._num_decoded
        for place, entry in enumerate(output.logprobs or ()):
            self._hold(entry.token_id, entry.logprob, entry.top, is_drafted=place < num_accepted)
        self._num_shown += len(output.text)
        is_whole = output.finish_reason is not None and output.stop_reason is None
        num_ready = sum(is_whole or held.text_offset < self._num_shown for held in self._held)
        ready, self._held = self._held[:num_ready], self._held[num_ready:]
        return ready

    def _hold(
        self, token_id: int, logprob: float | None, top: list[tuple[int, float]], *, is_drafted: bool = False
    ) -> None:
        """Keeps a token until its text is shown."""
        likeliest = [(self._tokenizer.token_bytes(other), value) for other, value in top]
        token = self._tokenizer.token_bytes(token_id)
        self._held.append(PlacedLogprob(token, logprob, likeliest, self._num_decoded, is_drafted))
        self._num_decoded += len(self._detokenizer.append(token_id))
