"""Log-probabilities in the two forms of OpenAI's API, and which of them belong to the text that a client has got.

A token's `bytes` are exact; its text is those bytes as UTF-8, where half characters show as the replacement sign. JSON
has no infinity: a log-probability below -9999 is reported as that, as OpenAI does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paceline.core import Output, TokenLogprob
from paceline.tokenizer import IncrementalDetokenizer, Tokenizer

_LOWEST = -9999.0


@dataclass(frozen=True, slots=True)
class PlacedLogprob:
    """A token's log-probability, and the character of the answer's text at which the token begins. A token that goes on
    within a character begins where the character does."""

    entry: TokenLogprob
    text_offset: int


class LogprobPlacer:
    """Finds the place of each token in an answer's text, and holds back the tokens whose text is held back.

    An engine holds back text that may become a stop string. If it becomes one, its tokens are not part of the answer.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: list[int]) -> None:
        self._detokenizer = IncrementalDetokenizer(tokenizer, prompt_token_ids)
        self._held: list[PlacedLogprob] = []
        self._num_decoded = 0
        self._num_shown = 0

    def add(self, output: Output) -> list[PlacedLogprob]:
        """Takes in an output; returns, in order, the tokens that belong to the text shown so far and are new."""
        for entry in output.logprobs or ():
            self._held.append(PlacedLogprob(entry, self._num_decoded))
            self._num_decoded += len(self._detokenizer.append(entry.token_id))
        self._num_shown += len(output.text)
        is_whole = output.finish_reason is not None and output.stop_reason is None
        num_ready = sum(is_whole or held.text_offset < self._num_shown for held in self._held)
        ready, self._held = self._held[:num_ready], self._held[num_ready:]
        return ready


def chat_logprobs(tokenizer: Tokenizer, logprobs: Iterable[PlacedLogprob]) -> dict[str, Any]:
    """The `logprobs` of a chat choice."""
    content = [
        {
            **_chat_entry(tokenizer, placed.entry.token_id, placed.entry.logprob),
            "top_logprobs": [_chat_entry(tokenizer, token_id, logprob) for token_id, logprob in placed.entry.top],
        }
        for placed in logprobs
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(tokenizer: Tokenizer, logprobs: list[PlacedLogprob]) -> dict[str, Any]:
    """The `logprobs` of a completion's choice."""
    return {
        "tokens": [_text(tokenizer, placed.entry.token_id) for placed in logprobs],
        "token_logprobs": [max(placed.entry.logprob, _LOWEST) for placed in logprobs],
        "top_logprobs": [_top_by_text(tokenizer, placed.entry) for placed in logprobs],
        "text_offset": [placed.text_offset for placed in logprobs],
    }


def _top_by_text(tokenizer: Tokenizer, entry: TokenLogprob) -> dict[str, float]:
    """The most likely tokens and the sampled one; of tokens that look alike the most likely counts."""
    by_text: dict[str, float] = {}
    for token_id, logprob in (*entry.top, (entry.token_id, entry.logprob)):
        by_text.setdefault(_text(tokenizer, token_id), max(logprob, _LOWEST))
    return by_text


def _chat_entry(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    data = tokenizer.token_bytes(token_id)
    return {"token": data.decode(errors="replace"), "logprob": max(logprob, _LOWEST), "bytes": list(data)}


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.token_bytes(token_id).decode(errors="replace")
