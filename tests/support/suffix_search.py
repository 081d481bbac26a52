"""Finds what suffix trees and their drafts must give by searching whole texts. It is the oracle of their tests."""

from __future__ import annotations

from dataclasses import dataclass

NUM_FOLLOWERS = 8
"""The number of latest followers that a context keeps."""

MIN_STORE_CONTEXT = 4
MAX_SIBLINGS = 3

FoundContext = tuple[int, int, list[int]]
"""A context that was found: its length, how often it occurs, and what followed it (latest first)."""


@dataclass(frozen=True)
class Text:
    """A text. Its first `num_context` tokens are only context: they are never followers."""

    token_ids: list[int]
    num_context: int = 0


def search(texts: list[Text], query: list[int], max_depth: int) -> list[FoundContext]:
    """Returns every suffix of `query` that occurs more often than the suffix with one more token, shortest first."""
    lengths = range(1, min(max_depth, len(query)) + 1)
    followers = [_followers(texts, query[len(query) - length :]) for length in lengths]
    counts = [*map(len, followers), 0]
    return [
        (length, counts[length - 1], found[: -NUM_FOLLOWERS - 1 : -1])
        for length, found in zip(lengths, followers, strict=True)
        if counts[length - 1] > counts[length]
    ]


def _followers(texts: list[Text], suffix: list[int]) -> list[int]:
    """Returns the tokens that follow `suffix` in the texts, in the order in which they were appended."""
    return [
        text.token_ids[position]
        for text in texts
        for position in range(max(text.num_context, len(suffix)), len(text.token_ids))
        if text.token_ids[position - len(suffix) : position] == suffix
    ]


def confidence_of(length: int, num_agreeing: int, num_followers: int) -> float:
    """Returns the confidence by the formula of native/suffix/guesses.hpp."""
    escape = 1 / (1 + length / 2 + length * length / 80)
    return (num_agreeing / num_followers) ** 2 * (1 - escape / num_followers)


def guess(
    own: list[Text], store: list[Text], query: list[int], max_depth: int, max_guesses: int
) -> list[tuple[int, float]]:
    """Returns guesses (token, confidence), best first. The confidence of a token is the highest of any context."""
    found = search(own, query, max_depth)[::-1]
    found += [context for context in search(store, query, max_depth)[::-1] if context[0] >= MIN_STORE_CONTEXT]
    best: dict[int, float] = {}
    for length, _, followers in found:
        for token_id in dict.fromkeys(followers):
            confidence = confidence_of(length, followers.count(token_id), len(followers))
            if confidence > best.get(token_id, 0.0):
                best.pop(token_id, None)  # an improved token moves to the end, which decides among equals
                best[token_id] = confidence
    guesses, rest = [], 1.0
    for token_id, confidence in sorted(best.items(), key=lambda item: -item[1])[:max_guesses]:
        guesses.append((token_id, min(confidence, rest)))
        rest -= guesses[-1][1]
    return guesses


@dataclass
class Node:
    """A node of a draft. `found` is its number in the order in which candidates were found."""

    token_id: int
    parent: int | None
    confidence: float
    survival: float
    found: int
    text: list[int]


def draft(
    own: list[Text],
    store: list[Text],
    max_depth: int,
    *,
    window: int,
    stop_below: float,
    has_branches: bool,
    ahead: list[int],
) -> list[Node]:
    """Returns the draft after the last of the texts in `own`, which the tokens `ahead` continue.

    It has the `window` nodes with the largest survival, without nodes whose survival is below `stop_below`.
    """
    nodes: list[Node] = []
    candidates: list[Node] = []
    num_found = 0

    def expand(parent: int | None, survival: float, text: list[int]) -> None:
        nonlocal num_found
        for token_id, confidence in guess(own, store, text, max_depth, MAX_SIBLINGS if has_branches else 1):
            if confidence <= 0 or survival * confidence < stop_below:
                break
            path = [*text, token_id]
            candidates.append(Node(token_id, parent, confidence, survival * confidence, num_found, path))
            num_found += 1

    expand(None, 1.0, [*(own[-1].token_ids if own else []), *ahead])
    while candidates and len(nodes) < window:
        candidates.sort(key=lambda node: (-node.survival, node.found))
        nodes.append(candidates.pop(0))
        expand(len(nodes) - 1, nodes[-1].survival, nodes[-1].text)
    return nodes
