"""`SpecialTokens`: finds special tokens that are spelled out in a text, before the rest of the text is tokenized.

The caller chooses the tokens: user-defined ones always, and control tokens only where it trusts the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping


class SpecialTokens:
    """Finds tokens by their spelling: the leftmost first, and the longest if several begin at the same place."""

    def __init__(self, ids_by_text: Mapping[str, int]) -> None:
        self._ids_by_text = dict(ids_by_text)
        lengths: dict[str, set[int]] = {}
        for text in self._ids_by_text:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: tuple(sorted(found, reverse=True)) for first, found in lengths.items()}
        self._candidates = _beginnings(self._ids_by_text)

    def split(self, text: str) -> Iterator[str | int]:
        """Yields the ids of the tokens found, and the stretches of text between them (never empty), in order."""
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
    """Returns a pattern that matches where one of the texts may begin, judged by its first two characters."""
    seconds: dict[str, set[str]] = {}
    for text in texts:
        seconds.setdefault(text[0], set()).add(text[1:2])
    return re.compile("|".join(_beginning(first, found) for first, found in seconds.items()))


def _beginning(first: str, seconds: set[str]) -> str:
    if "" in seconds:
        return re.escape(first)
    return f"{re.escape(first)}(?=[{''.join(map(re.escape, sorted(seconds)))}])"
