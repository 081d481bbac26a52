"""Draft trees as pure functions: depths, lookup of children, and cutting to a number of nodes."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.core import Draft


def depths(draft: Draft) -> list[int]:
    """Depth of each node; children of the root have 0."""
    result: list[int] = []
    for parent in draft.parents:
        result.append(0 if parent is None else result[parent] + 1)
    return result


def chain_length(draft: Draft) -> int:
    """Nodes of the chain that the draft begins with; those behind it are its branches."""
    return next((i for i, parent in enumerate(draft.parents) if parent != (i - 1 if i else None)), len(draft))


def child_by_token(draft: Draft) -> dict[tuple[int | None, int], int]:
    """Node by (parent, token id); parent None is the root. Of siblings with the same token the first counts."""
    result: dict[tuple[int | None, int], int] = {}
    for node, key in enumerate(zip(draft.parents, draft.token_ids, strict=True)):
        result.setdefault(key, node)
    return result


def cut(draft: Draft, num_nodes: int) -> Draft:
    """The first `num_nodes` nodes, which are a tree because parents come before their children."""
    if len(draft) <= num_nodes:
        return draft
    if num_nodes <= 0:
        return Draft()
    return Draft(draft.token_ids[:num_nodes], draft.parents[:num_nodes], draft.confidences[:num_nodes], draft.drafter)


def survivals(draft: Draft, probabilities: Iterable[float]) -> list[float]:
    """For each node the probability that it is accepted, of those given that its parent was."""
    result: list[float] = []
    for parent, probability in zip(draft.parents, probabilities, strict=True):
        result.append(probability if parent is None else probability * result[parent])
    return result


def best_first(draft: Draft) -> Draft:
    """The same tree with its nodes in the order of falling survival, so that cutting it keeps the likeliest.

    A parent comes before its children, being at least as likely and earlier in `draft`.
    """
    if draft.is_chain:
        return draft
    likelihoods = survivals(draft, draft.confidences)
    order = sorted(range(len(draft)), key=lambda node: -likelihoods[node])
    place = {node: index for index, node in enumerate(order)}
    return Draft(
        tuple(draft.token_ids[node] for node in order),
        tuple(None if (parent := draft.parents[node]) is None else place[parent] for node in order),
        tuple(draft.confidences[node] for node in order),
        draft.drafter,
    )
