"""`GrowingDraft`: a draft to which a model drafter adds one node after another, as its plan says.

It decides where the chain ends and which second choices become branches. Model drafters and their simulation use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from paceline.core import Draft, Plan


@dataclass(frozen=True, slots=True)
class DraftToken:
    """A drafter's token at one position, its confidence, and the drafter's second choice there."""

    token_id: int
    confidence: float
    second: DraftToken | None = None


@dataclass(frozen=True, slots=True)
class _Branch:
    """A second choice that may become a leaf below node `parent`."""

    parent: int | None
    token: DraftToken
    survival: float


@dataclass(slots=True)
class GrowingDraft:
    """A chain of at most `window` nodes, with the second choices that are worth a row as branches.

    If the probabilities are calibrated and the prices of rows do not fall, no other choice of branches brings more.
    """

    plan: Plan
    window: int
    token_ids: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    survival: float = 1.0
    branches: list[_Branch] = field(default_factory=list)
    is_drawn: bool = False

    def may_branch(self, confidence: float) -> bool:
        """Returns whether a second choice could be worth a row if the next node has this confidence."""
        prices = self.plan.branch_above
        return bool(prices) and self.survival * self.plan.probability(1.0 - confidence) > min(prices)

    def push(self, token: DraftToken) -> bool:
        """Adds the next node unless the plan ends the draft before it. Returns whether it added the node."""
        above = self.survival
        self.survival *= self.plan.probability(token.confidence)
        if self.survival < self.plan.stop_below:
            return False
        num_nodes = len(self.token_ids)
        if token.second is not None:
            survival = above * self.plan.probability(token.second.confidence)
            self.branches.append(_Branch(num_nodes - 1 if num_nodes else None, token.second, survival))
        self.token_ids.append(token.token_id)
        self.confidences.append(token.confidence)
        return True

    @property
    def room(self) -> int:
        """The number of nodes that may still be added to the chain."""
        return self.window - len(self.token_ids)

    @property
    def wants_pass(self) -> bool:
        """Whether the next node is worth a pass of the drafter."""
        return self.room > 0 and self.plan.is_worth_deepening(len(self.token_ids), self.survival)

    def push_all(self, tokens: Iterable[DraftToken | None], known: Sequence[int]) -> bool:
        """Adds the nodes from one pass. It adds the first token, and each further one while the token before it equals
        the guess that was read (`known`). None ends the draft. Returns whether another pass should follow."""
        self.is_drawn = True
        for number, token in enumerate(tokens):
            if token is None or not self.push(token):
                return False
            if self.room == 0 or number == len(known) or known[number] != token.token_id:
                break
        return self.wants_pass

    def finish(self, drafter: str) -> Draft:
        """Returns the chain with its branches. It is empty without a node, and has no name if no pass was made."""
        if not self.token_ids:
            return Draft(drafter=drafter) if self.is_drawn else Draft()
        chain = Draft.chain(self.token_ids, drafter, self.confidences)
        chosen = self._chosen_branches()
        if not chosen:
            return chain
        return Draft(
            (*chain.token_ids, *(branch.token.token_id for branch in chosen)),
            (*chain.parents, *(branch.parent for branch in chosen)),
            (*chain.confidences, *(branch.token.confidence for branch in chosen)),
            drafter,
        )

    def _chosen_branches(self) -> list[_Branch]:
        """Returns the branches that are worth a row, most likely first."""
        prices = self.plan.branch_above[len(self.token_ids) : self.window]
        ordered = sorted(self.branches, key=attrgetter("survival"), reverse=True)
        for number, (branch, price) in enumerate(zip(ordered, prices, strict=False)):
            if branch.survival <= price:
                return ordered[:number]
        return ordered[: len(prices)]
