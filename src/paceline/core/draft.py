"""The plain values of one speculative step: `Plan` (what to draft), `Draft` (the guess), `Verdict` (the check)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from paceline.core.output import TokenLogprob

NO_ROOM = "no room"  # why nothing is drafted

_MIN_CONFIDENCE = 0.02
_MAX_CONFIDENCE = 0.98


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a drafter's confidence has been worth: log-odds of acceptance are `slope` times its log-odds plus `bias`."""

    slope: float = 1.0
    bias: float = 0.0

    def probability(self, confidence: float) -> float:
        """Returns the probability of acceptance for a confidence, which counts as at most 0.98 and at least 0.02."""
        return probability_of(self.slope * log_odds(confidence) + self.bias)


def probability_of(odds: float) -> float:
    """Returns the probability for the given log-odds."""
    return 1.0 / (1.0 + math.exp(-odds))


def log_odds(confidence: float) -> float:
    """Returns the log-odds of a confidence, kept within 0.02 and 0.98 so that no drafter is sure beyond correction."""
    bounded = min(_MAX_CONFIDENCE, max(_MIN_CONFIDENCE, confidence))
    return math.log(bounded / (1.0 - bounded))


@dataclass(frozen=True, slots=True)
class Plan:
    """How many tokens `drafter` may propose for one sequence in this step; window 0 is plain decoding, and `reason`
    says why.

    The survival of a node is the product of the probabilities of acceptance down to it, each of them its confidence
    under `calibration` (None: as it is). A node whose survival is below `stop_below` is left out and ends the draft;
    below a node at depth d whose survival is less than `deepen_above[d]` (where given) no further node is sought.
    Where there are `branch_above`, a drafter that makes chains may hang its second choices beside their nodes, each as
    a node behind the chain: as the draft's node n, if its survival is more than `branch_above[n]`. Where there are
    `read_above`, it may read ahead in a pass what others guess that it will draw: the n-th token if the likelihood that
    it and those before it are right is more than `read_above[n]`.
    """

    drafter: str
    window: int
    stop_below: float = 0.0
    deepen_above: tuple[float, ...] = ()
    branch_above: tuple[float, ...] = ()
    read_above: tuple[float, ...] = ()
    calibration: Calibration | None = None
    reason: str | None = None

    def with_window(self, window: int) -> Plan:
        """The same plan for so many tokens; where there is room for none of them, that is the reason."""
        if window == self.window:
            return self
        return replace(self, window=window, reason=self.reason if window > 0 else NO_ROOM)

    def is_worth_deepening(self, num_nodes: int, survival: float) -> bool:
        """Whether a chain of so many nodes is to go on below its last one."""
        return num_nodes > len(self.deepen_above) or survival >= self.deepen_above[num_nodes - 1]

    def probability(self, confidence: float) -> float:
        """That a node of this confidence is accepted given that its parent was."""
        return confidence if self.calibration is None else self.calibration.probability(confidence)


@dataclass(frozen=True, slots=True)
class Draft:
    """A guess: a tree of tokens below the sequence's last token; a chain is the tree where each node's parent is the
    one before.

    `parents[i]` is the index of node i's parent and is smaller than i; None marks a child of the root (the last
    committed token). `confidences[i]` is the drafter's estimate that node i is accepted given that its parent was, in
    [0, 1]. An empty draft with the name of its `drafter` was drawn, and no token was likely enough.
    """

    token_ids: tuple[int, ...] = ()
    parents: tuple[int | None, ...] = ()
    confidences: tuple[float, ...] = ()
    drafter: str = "none"

    @classmethod
    def chain(cls, token_ids: list[int], drafter: str, confidences: list[float] | None = None) -> Draft:
        """A draft without branches."""
        size = len(token_ids)
        parents = tuple(None if i == 0 else i - 1 for i in range(size))
        return cls(tuple(token_ids), parents, tuple(confidences or [1.0] * size), drafter)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def is_chain(self) -> bool:
        """Whether no node has a sibling."""
        return all(parent == (None if i == 0 else i - 1) for i, parent in enumerate(self.parents))

    @property
    def is_tree(self) -> bool:
        """Whether each node has a confidence from 0 to 1 and a parent that comes before it."""
        sizes = {len(self.token_ids), len(self.parents), len(self.confidences)}
        return (
            len(sizes) == 1
            and all(0.0 <= confidence <= 1.0 for confidence in self.confidences)
            and all(
                parent is None or (isinstance(parent, int) and 0 <= parent < i) for i, parent in enumerate(self.parents)
            )
        )

    def path_to(self, node: int) -> list[int]:
        """Node indices from the child of the root down to `node`, inclusive."""
        path: list[int] = []
        current: int | None = node
        while current is not None:
            path.append(current)
            current = self.parents[current]
        return path[::-1]

    def children_of(self, node: int | None) -> Iterator[int]:
        """Indices of the nodes below `node` (None: the root), in order."""
        return (i for i, parent in enumerate(self.parents) if parent == node)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The check of one draft.

    `path` are the accepted draft nodes from the root down, `token_ids` their tokens, `next_token` the target's own
    token after them (recovered or bonus). Where they were asked for, `logprobs` and `row_hashes` have one entry for
    each accepted token and for `next_token`; else they are empty. `error` says why the target has no token after the
    sequence's last one; nothing is committed then.
    """

    path: tuple[int, ...]
    token_ids: tuple[int, ...]
    next_token: int | None
    logprobs: tuple[TokenLogprob, ...]
    num_drafted: int
    drafter: str = "none"
    row_hashes: tuple[str, ...] = field(default=())
    error: str | None = None

    @property
    def committed(self) -> tuple[int, ...]:
        """All tokens this verdict adds: the accepted ones and `next_token`."""
        return self.token_ids if self.next_token is None else (*self.token_ids, self.next_token)
