"""Log-probabilities in the two forms of OpenAI's API.

A token's `bytes` are exact; its text is those bytes as UTF-8, where half characters show as the replacement sign. JSON
has no infinity: a log-probability below -9999 is reported as that, as OpenAI does.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from paceline.core import TokenLogprob
from paceline.tokenizer import Tokenizer

_LOWEST = -9999.0


def chat_logprobs(tokenizer: Tokenizer, logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
    """The `logprobs` of a chat choice."""
    content = [
        {
            **_chat_entry(tokenizer, entry.token_id, entry.logprob),
            "top_logprobs": [_chat_entry(tokenizer, token_id, logprob) for token_id, logprob in entry.top],
        }
        for entry in logprobs
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(tokenizer: Tokenizer, logprobs: list[TokenLogprob], text_offset: int) -> dict[str, Any]:
    """The `logprobs` of a completion's choice; `text_offset` is where its first token's text begins."""
    tokens = [_text(tokenizer, entry.token_id) for entry in logprobs]
    offsets = list(accumulate(map(len, tokens), initial=text_offset))[:-1]
    return {
        "tokens": tokens,
        "token_logprobs": [max(entry.logprob, _LOWEST) for entry in logprobs],
        "top_logprobs": [_top_by_text(tokenizer, entry) for entry in logprobs],
        "text_offset": offsets,
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
