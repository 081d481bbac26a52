"""Pure functions on draft trees: depths, survivals, lookup of children, sorting and cutting."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.core import Draft


def depths(draft: Draft) -> list[int]:
    """Returns the depth of each node; children of the root have depth 0."""
    result: list[int] = []
    for parent in draft.parents:
        result.append(0 if parent is None else result[parent] + 1)
    return result


def chain_length(draft: Draft) -> int:
    """Returns the number of nodes in the chain that the draft begins with; the nodes after it are branches."""
    return next((i for i, parent in enumerate(draft.parents) if parent != (i - 1 if i else None)), len(draft))


def child_by_token(draft: Draft) -> dict[tuple[int | None, int], int]:
    """Returns nodes by (parent, token id); parent None is the root. If siblings have the same token, the first wins."""
    result: dict[tuple[int | None, int], int] = {}
    for node, key in enumerate(zip(draft.parents, draft.token_ids, strict=True)):
        result.setdefault(key, node)
    return result


def cut(draft: Draft, num_nodes: int) -> Draft:
    """Returns the draft's first `num_nodes` nodes. They form a tree, because parents come before their children."""
    if len(draft) <= num_nodes:
        return draft
    if num_nodes <= 0:
        return Draft()
    return Draft(draft.token_ids[:num_nodes], draft.parents[:num_nodes], draft.confidences[:num_nodes], draft.drafter)


def survivals(draft: Draft, probabilities: Iterable[float]) -> list[float]:
    """Returns the probability that each node is accepted.

    `probabilities` has for each node the probability that it is accepted given that its parent was.
    """
    result: list[float] = []
    for parent, probability in zip(draft.parents, probabilities, strict=True):
        result.append(probability if parent is None else probability * result[parent])
    return result


def best_first(draft: Draft) -> Draft:
    """Returns the same tree with its nodes sorted by falling survival, so that `cut` keeps the likeliest nodes.

    Parents still come before their children: they are at least as likely, and ties keep the order of `draft`.
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
