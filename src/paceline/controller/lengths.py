"""`ExpectedLengths`: how many tokens a sequence still has to go, which is what a drafter's start must be repaid by."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core import Sequence

_FIRST_MEAN = 200.0
_MEMORY = 0.95


@dataclass(slots=True)
class ExpectedLengths:
    """A running mean of output lengths, and from it what is left of a sequence."""

    mean: float = _FIRST_MEAN

    def finished(self, sequence: Sequence) -> None:
        """Takes in a sequence that ended."""
        self.mean = self.mean * _MEMORY + sequence.num_output_tokens * (1.0 - _MEMORY)

    def remaining(self, sequence: Sequence) -> float:
        """Expected further tokens: the mean less what it has, but half the mean at least, within its `max_tokens`."""
        expected = max(self.mean - sequence.num_output_tokens, self.mean / 2)
        limit = sequence.request.sampling.max_tokens
        return expected if limit is None else max(0.0, min(expected, limit - sequence.num_output_tokens))
