"""`DigitGroups`: a small language of constraints for tests. An output is groups of digits with a comma after each."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core import Constraint
from paceline.core.errors import InvalidRequestError
from paceline.sampling.constraints import MaskQuery
from paceline.sampling.sampler import UInt32Array
from paceline.tokenizer import Tokenizer

DIGITS = tuple(range(ord("0"), ord("9") + 1))
COMMA = ord(",")


class DigitGroupsState:
    """The state of one output: how many digits its last group has. The first 256 tokens of tiny models are bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.num_digits = 0

    def advance(self, token_ids: Sequence[int]) -> None:
        self.num_digits = self.after(token_ids)

    def after(self, token_ids: Sequence[int]) -> int:
        """Returns the number of digits in the last group after these tokens; -1 if one of them is not allowed."""
        count = self.num_digits
        for token_id in token_ids:
            if token_id not in self.allowed(count):
                return -1
            count = 0 if token_id == COMMA else count + 1
        return count

    def allowed(self, num_digits: int) -> tuple[int, ...]:
        return (COMMA,) if num_digits == self.size else DIGITS if num_digits >= 0 else ()

    def forced_token_ids(self, drafted: Sequence[int], limit: int) -> list[int]:
        return [COMMA][:limit] if self.after(drafted) == self.size else []


class DigitGroups:
    """The kind of constraint. Its source is the number of digits in a group. `num_rows` has the number of rows of every
    call of `fill`."""

    def __init__(self) -> None:
        self.num_rows: list[int] = []

    def begin(self, constraint: Constraint, tokenizer: Tokenizer) -> DigitGroupsState:
        if not constraint.source.isdecimal():
            raise InvalidRequestError(f"constraint {constraint.source!r} is not a number of digits", "constraint")
        return DigitGroupsState(int(constraint.source))

    def fill(self, masks: UInt32Array, queries: Sequence[MaskQuery]) -> None:
        self.num_rows.append(len(queries))
        for state, drafted, row in queries:
            assert not masks[row].any()
            for token_id in state.allowed(state.after(drafted)):
                masks[row, token_id // 32] |= 1 << (token_id % 32)
