"""The plain values of one speculative step: `Plan` (what to draft), `Draft` (the guess), `Verdict` (the check)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from paceline.core.output import TokenLogprob

NO_ROOM = "no room"  # the reason of a plan whose window was cut to 0

_MIN_CONFIDENCE = 0.02
_MAX_CONFIDENCE = 0.98


@dataclass(frozen=True, slots=True)
class Calibration:
    """Corrects a drafter's confidence: the log-odds of acceptance are `slope` times the confidence's plus `bias`."""

    slope: float = 1.0
    bias: float = 0.0

    def probability(self, confidence: float) -> float:
        """Returns the probability of acceptance for a confidence, which is first limited to 0.02..0.98."""
        return probability_of(self.slope * log_odds(confidence) + self.bias)


def probability_of(odds: float) -> float:
    """Returns the probability for the given log-odds."""
    return 1.0 / (1.0 + math.exp(-odds))


def log_odds(confidence: float) -> float:
    """Returns the log-odds of a confidence. It is first limited to 0.02..0.98, so that `Calibration` can correct it."""
    bounded = min(_MAX_CONFIDENCE, max(_MIN_CONFIDENCE, confidence))
    return math.log(bounded / (1.0 - bounded))


@dataclass(frozen=True, slots=True)
class Plan:
    """What `drafter` may propose for one sequence in this step: at most `window` tokens. Window 0 is plain decoding,
    and `reason` then says why.

    A node's survival is the product of the acceptance probabilities of all nodes on its path, itself included. An
    acceptance probability is the node's confidence, corrected by `calibration` (None: taken as it is). The limits:

    - `stop_below`: a node with a lower survival is left out and ends the draft.
    - `deepen_above`: no further node is sought below a node at depth d whose survival is less than `deepen_above[d]`.
    - `branch_above`: a drafter of chains may add its second choices as branches. They come after the chain, and one
      may become the draft's node n if its survival is more than `branch_above[n]`.
    - `read_above`: a draft model may read guesses of its next tokens in the same pass. Guess n (from 0) is read if the
      likelihood that it and all guesses before it are right is more than `read_above[n]`.

    `deepen_above` does not limit depths beyond its end; branches and guesses beyond the end of theirs are not allowed.
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
        """Returns the same plan with another window; if that is 0, the reason becomes `NO_ROOM`."""
        if window == self.window:
            return self
        return replace(self, window=window, reason=self.reason if window > 0 else NO_ROOM)

    def is_worth_deepening(self, num_nodes: int, survival: float) -> bool:
        """Returns whether to seek another node after a chain of `num_nodes`, whose last node has this survival."""
        return num_nodes > len(self.deepen_above) or survival >= self.deepen_above[num_nodes - 1]

    def probability(self, confidence: float) -> float:
        """Returns the probability that a node of this confidence is accepted, given that its parent was."""
        return confidence if self.calibration is None else self.calibration.probability(confidence)


@dataclass(frozen=True, slots=True)
class Draft:
    """A guess: a tree of tokens below the sequence's last token. In a chain, each node's parent is the node before it.

    `parents[i]` is the index of node i's parent and is smaller than i; None marks a child of the root (the last
    committed token). `confidences[i]`, in [0, 1], is the drafter's estimate of the probability that node i is accepted
    given that its parent was. An empty draft that names its `drafter` means that a model was run for it, but no token
    was likely enough.
    """

    token_ids: tuple[int, ...] = ()
    parents: tuple[int | None, ...] = ()
    confidences: tuple[float, ...] = ()
    drafter: str = "none"

    @classmethod
    def chain(cls, token_ids: list[int], drafter: str, confidences: list[float] | None = None) -> Draft:
        """Returns a draft without branches; confidences default to 1."""
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
        """Returns the node indices from the child of the root down to `node`, inclusive."""
        path: list[int] = []
        current: int | None = node
        while current is not None:
            path.append(current)
            current = self.parents[current]
        return path[::-1]

    def children_of(self, node: int | None) -> Iterator[int]:
        """Returns the indices of the children of `node` (None: of the root), in order."""
        return (i for i, parent in enumerate(self.parents) if parent == node)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The check of one draft.

    `path` lists the accepted draft nodes from the root down, and `token_ids` their tokens. `next_token` is the target's
    own token after them (recovered or bonus). If `logprobs` and `row_hashes` were asked for, they have one entry for
    each accepted token and one for `next_token`; otherwise they are empty. `error` says why the target has no token
    after the sequence's last one; nothing is committed then.
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
