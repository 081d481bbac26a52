"""Drafters that know the text: one that is always right, one that is always wrong, one that hides the truth in a tree."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.core import Draft, Plan, Sequence, Verdict


class OracleDrafter:
    """Proposes the true continuation; `texts` has the whole token ids (prompt included) by sequence id."""

    name = "oracle"
    is_free = False

    def __init__(self, texts: Mapping[str, list[int]], vocab_size: int) -> None:
        self.texts = texts
        self.vocab_size = vocab_size
        self.followed: set[str] = set()

    def begin(self, sequence: Sequence) -> None:
        assert sequence.sequence_id not in self.followed
        self.followed.add(sequence.sequence_id)

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> list[Draft]:
        assert {sequence.sequence_id for sequence in sequences} <= self.followed
        return [self.guess(self._rest(sequence, plan)) for sequence, plan in zip(sequences, plans, strict=True)]

    def guess(self, rest: list[int]) -> Draft:
        """The draft of someone who knows that `rest` follows."""
        return Draft.chain(rest, self.name)

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:
        assert len(sequences) == len(verdicts)

    def end(self, sequence: Sequence) -> None:
        self.followed.remove(sequence.sequence_id)

    def _rest(self, sequence: Sequence, plan: Plan) -> list[int]:
        text = self.texts[sequence.sequence_id]
        return text[len(sequence.token_ids) :][: plan.window]


class WrongDrafter(OracleDrafter):
    """Proposes a wrong token at every position."""

    name = "wrong"

    def guess(self, rest: list[int]) -> Draft:
        return Draft.chain([(token_id + 1) % self.vocab_size for token_id in rest], self.name)


class TreeDrafter(OracleDrafter):
    """Proposes a tree: at every depth first a wrong token, then the true one; cut by the plan's window."""

    name = "tree"

    def guess(self, rest: list[int]) -> Draft:
        token_ids: list[int] = []
        parents: list[int | None] = []
        parent: int | None = None
        for token_id in rest[: (len(rest) + 1) // 2]:
            token_ids += [(token_id + 1) % self.vocab_size, token_id]
            parents += [parent, parent]
            parent = len(token_ids) - 1
        size = len(rest)
        return Draft(tuple(token_ids[:size]), tuple(parents[:size]), (0.5,) * size, self.name)
