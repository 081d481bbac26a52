"""`SpecialTokens`: cuts the spelled-out special tokens from a text before the rest is tokenized.

Control tokens count only where the caller trusts the text; user-defined tokens always do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping


class SpecialTokens:
    """Finds tokens by their spelling: the leftmost first, the longest where several begin at one place."""

    def __init__(self, ids_by_text: Mapping[str, int]) -> None:
        self._ids_by_text = dict(ids_by_text)
        lengths: dict[str, set[int]] = {}
        for text in self._ids_by_text:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: tuple(sorted(found, reverse=True)) for first, found in lengths.items()}
        self._candidates = _beginnings(self._ids_by_text)

    def split(self, text: str) -> Iterator[str | int]:
        """The text in order as token ids and the stretches between them (never empty)."""
        start = position = 0
        while self._ids_by_text and (candidate := self._candidates.search(text, position)):
            found = self._longest_at(text, candidate.start())
            if found is None:
                position = candidate.start() + 1
                continue
            if candidate.start() > start:
                yield text[start : candidate.start()]
            yield self._ids_by_text[found]
            start = position = candidate.start() + len(found)
        if start < len(text):
            yield text[start:]

    def _longest_at(self, text: str, position: int) -> str | None:
        for length in self._lengths[text[position]]:
            piece = text[position : position + length]
            if piece in self._ids_by_text:
                return piece
        return None


def _beginnings(texts: Mapping[str, int]) -> re.Pattern[str]:
    """Matches where one of the texts may begin, judged by its first two characters."""
    seconds: dict[str, set[str]] = {}
    for text in texts:
        seconds.setdefault(text[0], set()).add(text[1:2])
    return re.compile("|".join(_beginning(first, found) for first, found in seconds.items()))


def _beginning(first: str, seconds: set[str]) -> str:
    if "" in seconds:
        return re.escape(first)
    return f"{re.escape(first)}(?=[{''.join(map(re.escape, sorted(seconds)))}])"
