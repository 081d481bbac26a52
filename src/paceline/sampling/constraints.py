"""Constraints on the form of an output: the interface of a kind of constraint, and masks for many rows at once.

A request carries its constraint as data (`core.Constraint`). A kind turns that into a state for each sequence, and says
for any continuation which tokens may follow and which tokens must. The engine is given its kinds by name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from paceline.core import Constraint
from paceline.core.errors import InvalidRequestError
from paceline.sampling.sampler import UInt32Array
from paceline.tokenizer import Tokenizer

_BITS = 32

_logger = logging.getLogger(__name__)


class ConstraintState(Protocol):
    """The state of one sequence's output within its constraint."""

    def advance(self, token_ids: Sequence[int]) -> None:
        """Takes in tokens that were committed to the output; the request's resumed tokens come here too."""
        ...

    def forced_token_ids(self, drafted: Sequence[int], limit: int) -> list[int]:
        """Returns the tokens that must follow the output and `drafted`, in order, `limit` at most; none where there is
        a choice."""
        ...


class MaskQuery(NamedTuple):
    """Asks which tokens may follow the output and then `drafted`; row `mask_row` of the bitmasks takes the answer."""

    state: ConstraintState
    drafted: Sequence[int]
    mask_row: int


class ConstraintKind(Protocol):
    """One language of constraints, or several."""

    def begin(self, constraint: Constraint, tokenizer: Tokenizer) -> ConstraintState:
        """Returns the state of an output without tokens; raises InvalidRequestError for a source that it refuses."""
        ...

    def fill(self, masks: UInt32Array, queries: Sequence[MaskQuery]) -> None:
        """Sets the bits of the allowed tokens in the rows that the queries name; all bits are 0 before. A row is never
        read if its drafted tokens are not allowed themselves."""
        ...


@dataclass(frozen=True, slots=True)
class OutputConstraint:
    """The constraint of one sequence: its state, and the kind that fills its masks."""

    kind: ConstraintKind
    state: ConstraintState


@dataclass(frozen=True, slots=True)
class Constraints:
    """The kinds of constraints that requests of one engine may carry, by name."""

    kinds: Mapping[str, ConstraintKind]
    tokenizer: Tokenizer

    def begin(self, constraint: Constraint | None) -> OutputConstraint | None:
        """Returns the constraint of a new sequence. Raises InvalidRequestError for an unknown kind or a bad source."""
        if constraint is None:
            return None
        kind = self.kinds.get(constraint.kind)
        if kind is None:
            known = ", ".join(self.kinds) or "none"
            raise InvalidRequestError(f"constraint {constraint.kind!r} is not known; known are: {known}", "constraint")
        return OutputConstraint(kind, kind.begin(constraint, self.tokenizer))


@dataclass(frozen=True, slots=True)
class Masks:
    """Which tokens are allowed in some rows of logits. Row `rows[i]` of `bits` restricts row i of the logits; None
    means that row i is not restricted. `bits` [masks, words] is None where no row is restricted."""

    rows: list[int | None]
    bits: UInt32Array | None


def empty_masks(num_masks: int, vocab_size: int) -> UInt32Array:
    """Returns masks [num_masks, words] that allow no token."""
    return np.zeros((num_masks, -(-vocab_size // _BITS)), np.uint32)


def allow(masks: UInt32Array, mask_row: int, token_id: int) -> None:
    """Allows one more token in a row."""
    masks[mask_row, token_id // _BITS] |= np.uint32(1 << (token_id % _BITS))


def fill_masks(vocab_size: int, places: Sequence[tuple[OutputConstraint | None, Sequence[int]]]) -> Masks:
    """Returns the masks for some places in drafts. A place is a sequence's constraint (None: it has none), and the
    drafted tokens between its output and the place.

    Each kind of constraint is asked once for all of its rows. If it raises, no token is allowed in these rows, so their
    sequences end with an error; other sequences go on.
    """
    if all(constraint is None for constraint, _ in places):
        return Masks([None] * len(places), None)
    kinds: dict[int, ConstraintKind] = {}
    queries: dict[int, list[MaskQuery]] = {}
    rows: list[int | None] = []
    num_masks = 0
    for constraint, drafted in places:
        rows.append(None if constraint is None else num_masks)
        if constraint is not None:
            kinds[id(constraint.kind)] = constraint.kind
            queries.setdefault(id(constraint.kind), []).append(MaskQuery(constraint.state, drafted, num_masks))
            num_masks += 1
    bits = empty_masks(num_masks, vocab_size)
    for key, own in queries.items():
        try:
            kinds[key].fill(bits, own)
        except Exception:
            _logger.exception("a constraint failed; the sequences that carry it end with an error")
            bits[[query.mask_row for query in own]] = 0
    return Masks(rows, bits)
