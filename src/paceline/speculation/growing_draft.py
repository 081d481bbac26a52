"""`GrowingDraft`: a draft in the making by a drafter that makes chains, node by node, as its plan says.

The draft model's drafter and the simulation of it share this: where a chain ends, and which second choices it takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter

from paceline.core import Draft, Plan


@dataclass(frozen=True, slots=True)
class Guess:
    """A drafter's token at one place, what it thinks of it, and its second choice there."""

    token_id: int
    confidence: float
    second: Guess | None = None


@dataclass(frozen=True, slots=True)
class _Branch:
    """A second choice that may become a leaf below node `parent`."""

    parent: int | None
    guess: Guess
    survival: float


@dataclass(slots=True)
class GrowingDraft:
    """A chain of at most `window` nodes, and below them the second choices that are worth a row.

    With calibrated probabilities and row prices that do not fall, no other choice among the branches brings more.
    """

    plan: Plan
    window: int
    token_ids: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    survival: float = 1.0
    branches: list[_Branch] = field(default_factory=list)

    def may_branch(self, confidence: float) -> bool:
        """Whether a second choice beside the next node could be worth a row, if that node has this confidence."""
        prices = self.plan.branch_above
        return bool(prices) and self.survival * self.plan.probability(1.0 - confidence) > min(prices)

    def push(self, guess: Guess) -> bool:
        """Takes the next node unless the plan ends the draft before it; returns whether another is to follow."""
        above = self.survival
        self.survival *= self.plan.probability(guess.confidence)
        if self.survival < self.plan.stop_below:
            return False
        num_nodes = len(self.token_ids)
        if guess.second is not None:
            survival = above * self.plan.probability(guess.second.confidence)
            self.branches.append(_Branch(num_nodes - 1 if num_nodes else None, guess.second, survival))
        self.token_ids.append(guess.token_id)
        self.confidences.append(guess.confidence)
        return num_nodes + 1 < self.window and self.plan.is_worth_deepening(num_nodes + 1, self.survival)

    def finish(self, drafter: str) -> Draft:
        """The chain with its branches; empty without a node."""
        chain = Draft.chain(self.token_ids, drafter, self.confidences) if self.token_ids else Draft()
        chosen = self._chosen_branches()
        if not chosen:
            return chain
        return Draft(
            (*chain.token_ids, *(branch.guess.token_id for branch in chosen)),
            (*chain.parents, *(branch.parent for branch in chosen)),
            (*chain.confidences, *(branch.guess.confidence for branch in chosen)),
            drafter,
        )

    def _chosen_branches(self) -> list[_Branch]:
        """Those worth a row, the likeliest first."""
        prices = self.plan.branch_above[len(self.token_ids) : self.window]
        ordered = sorted(self.branches, key=attrgetter("survival"), reverse=True)
        for number, (branch, price) in enumerate(zip(ordered, prices, strict=False)):
            if branch.survival <= price:
                return ordered[:number]
        return ordered[: len(prices)]
