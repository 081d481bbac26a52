"""Log-probabilities in the two forms of OpenAI's API: for chats and for completions.

A token's `bytes` are exact. Its text is those bytes decoded as UTF-8, with U+FFFD for incomplete characters. JSON has
no infinity, so a log-probability below -9999 is reported as -9999, as OpenAI's API does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from paceline.gateway.logprob_places import PlacedLogprob

_LOWEST = -9999.0


def chat_logprobs(logprobs: Iterable[PlacedLogprob], *, has_drafted: bool = False) -> dict[str, Any]:
    """Returns the `logprobs` of a chat choice. With `has_drafted`, each token says whether a draft had guessed it."""
    content = [
        {
            **_chat_entry(placed.token, placed.logprob),
            "top_logprobs": [_chat_entry(token, logprob) for token, logprob in placed.top],
            **({"drafted": placed.is_drafted} if has_drafted else {}),
        }
        for placed in logprobs
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(logprobs: list[PlacedLogprob]) -> dict[str, Any]:
    """Returns the `logprobs` of a completion's choice."""
    return {
        "tokens": [_text(placed.token) for placed in logprobs],
        "token_logprobs": [_shown(placed.logprob) for placed in logprobs],
        "top_logprobs": [None if placed.logprob is None else _top_by_text(placed) for placed in logprobs],
        "text_offset": [placed.text_offset for placed in logprobs],
    }


def _shown(logprob: float | None) -> float | None:
    return None if logprob is None else max(logprob, _LOWEST)


def _top_by_text(placed: PlacedLogprob) -> dict[str, float | None]:
    """Returns the log-probabilities of the most likely tokens and of the sampled one by their text.

    Of several tokens with the same text the most likely counts.
    """
    by_text: dict[str, float | None] = {}
    for token, logprob in (*placed.top, (placed.token, placed.logprob)):
        by_text.setdefault(_text(token), _shown(logprob))
    return by_text


def _chat_entry(token: bytes, logprob: float | None) -> dict[str, Any]:
    return {"token": _text(token), "logprob": _shown(logprob), "bytes": list(token)}


def _text(token: bytes) -> str:
    return token.decode(errors="replace")
