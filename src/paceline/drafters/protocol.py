"""The `Drafter` protocol: what guesses tokens, from begin to end of a sequence.

A drafter reads sequences and never writes them; it does not know how its drafts are verified, and whatever it proposes
cannot change the text. One that owns a KV store owns that store's block manager too.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from paceline.core import Draft, Plan, Sequence, Verdict


class Drafter(Protocol):
    """Guesses the next tokens of running sequences.

    `name` is what plans and drafts call it. `is_free` says that proposing costs so little that it is asked in every
    step before the controller plans; the others are asked only where a plan names them.
    """

    name: str
    is_free: bool

    def begin(self, sequence: Sequence) -> None:
        """Starts to follow a sequence that runs from now on, its prompt computed or not; it may have output already
        (resumed, or preempted before). Called once before anything else about it."""
        ...

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> list[Draft]:
        """One draft for each sequence, of at most `plans[i].window` nodes, perhaps empty; drafts are ragged, and one
        sequence never limits another. `sequences` are some of those begun, each with its prompt computed."""
        ...

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:
        """Shows what became of this step's drafts, by whatever drafter they were; the verdicts' tokens are already in
        `sequences[i].token_ids`. Not called for sequences that ended."""
        ...

    def end(self, sequence: Sequence) -> None:
        """Forgets a sequence that finished, was aborted or lost its place; it can begin again."""
        ...


@runtime_checkable
class CatchingUpDrafter(Protocol):
    """A drafter that must read what it has not seen of a sequence before it can guess, and says how much that is."""

    def num_missed(self, sequence: Sequence) -> int | None:
        """Committed tokens still to be read before a draft can start, the last one not counted; None where there is no
        room for them now, so that it cannot draft."""
        ...


@runtime_checkable
class PassCountingDrafter(Protocol):
    """A drafter that says how many rows gave logits in each pass of its model in the last call of `propose`."""

    passes: list[int]
