"""`SequenceSampler`: everything that sampling one sequence needs, for the verifier and for drafters that sample."""

from __future__ import annotations

from collections import abc
from collections.abc import Collection
from dataclasses import dataclass

from paceline.core import Sequence
from paceline.core.errors import InvalidRequestError
from paceline.sampling.constraints import OutputConstraint
from paceline.sampling.sampler import RowSampler, Sampler


@dataclass(frozen=True, slots=True, eq=False)
class SequenceSampler:
    """One sequence's state in its backend's sampler, and the constraint on its output (None: there is none).

    `num_logprobs` is how many of the most likely tokens are reported with their log-probabilities beside each sampled
    token (None: no log-probabilities at all).
    """

    rows: RowSampler
    num_logprobs: int | None = None
    constraint: OutputConstraint | None = None

    @classmethod
    def begin(
        cls,
        sampler: Sampler,
        sequence: Sequence,
        *,
        vocab_size: int,
        ending_token_ids: Collection[int] = (),
        constraint: OutputConstraint | None = None,
    ) -> SequenceSampler:
        """Returns the state of a sequence as it is now; output that it already has (resumed tokens) counts as output.

        `ending_token_ids` cannot be sampled before `min_tokens` tokens were output. Raises InvalidRequestError where
        that leaves no token.
        """
        request = sequence.request
        banned = {token_id for token_id in ending_token_ids if 0 <= token_id < vocab_size}
        if request.sampling.min_tokens > 0 and len(banned) == vocab_size:
            raise InvalidRequestError(
                f"min_tokens is {request.sampling.min_tokens}, but every token may end the text", "min_tokens"
            )
        rows = sampler.begin(
            request.sampling,
            prompt_token_ids=request.prompt_token_ids,
            seed=sequence.seed,
            choice_index=request.choice_index,
            banned_token_ids=banned,
        )
        begun = cls(rows, request.sampling.num_logprobs, constraint)
        begun.append(sequence.token_ids[sequence.num_prompt_tokens :])
        return begun

    def forced_token_ids(self, drafted: abc.Sequence[int], limit: int) -> list[int]:
        """Returns the tokens that the constraint forces after the output and `drafted`, `limit` at most; none without a
        constraint."""
        return [] if self.constraint is None else self.constraint.state.forced_token_ids(drafted, limit)

    def append(self, token_ids: abc.Sequence[int]) -> None:
        """Takes in tokens that were committed to the output."""
        self.rows.append(token_ids)
        if self.constraint is not None:
            self.constraint.state.advance(token_ids)
