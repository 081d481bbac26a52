"""Drafters whose guesses a test decides: never right, always right, and random trees of right and wrong branches.

They know the answers of plain decoding (`answers`, by prompt), so every kind of verdict occurs often. They check that
the engine keeps to the protocol of drafters.
"""

from __future__ import annotations

import random

from paceline.core import Draft, Plan, Sequence, Verdict
from paceline.drafters.protocol import Drafter, Proposals

Answers = dict[tuple[int, ...], list[int]]


class ScriptedDrafter(Drafter):
    """The base of all scripted drafters. It follows the sequences and checks what the protocol promises."""

    name = "scripted"
    is_free = True

    def __init__(self, answers: Answers, vocab_size: int, seed: int = 0) -> None:
        self.answers = answers
        self.vocab_size = vocab_size
        self.random = random.Random(seed)
        self.lengths: dict[str, int] = {}
        self.num_drafted = 0

    def begin(self, sequence: Sequence) -> None:
        assert sequence.sequence_id not in self.lengths
        self.lengths[sequence.sequence_id] = len(sequence.token_ids)

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        drafts = []
        for sequence, plan in zip(sequences, plans, strict=True):
            assert self.lengths[sequence.sequence_id] == len(sequence.token_ids)
            assert plan.window > 0
            drafts.append(self.guess(self.future(sequence), plan.window))
            self.num_drafted += len(drafts[-1])
        return Proposals(drafts)

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:
        for sequence, verdict in zip(sequences, verdicts, strict=True):
            self.lengths[sequence.sequence_id] += len(verdict.committed)
            assert self.lengths[sequence.sequence_id] == len(sequence.token_ids)

    def end(self, sequence: Sequence) -> None:
        del self.lengths[sequence.sequence_id]

    def future(self, sequence: Sequence) -> list[int]:
        """Returns the tokens that plain decoding commits next."""
        answer = self.answers[tuple(sequence.request.prompt_token_ids)]
        return answer[sequence.num_output_tokens :]

    def wrong(self, future: list[int], depth: int) -> int:
        """Returns a random token that is not the target's at this depth."""
        token_id = self.random.randrange(self.vocab_size)
        is_right = depth < len(future) and future[depth] == token_id
        return (token_id + 1) % self.vocab_size if is_right else token_id

    def guess(self, future: list[int], window: int) -> Draft:
        raise AssertionError("each scripted drafter has its own guess")


class WrongDrafter(ScriptedDrafter):
    """Fills the window with tokens that are all wrong."""

    name = "wrong"

    def guess(self, future: list[int], window: int) -> Draft:
        return Draft.chain([self.wrong(future, depth) for depth in range(window)], self.name)


class RightDrafter(ScriptedDrafter):
    """Fills the window with the tokens that the target will choose."""

    name = "right"

    def guess(self, future: list[int], window: int) -> Draft:
        return Draft.chain(future[:window], self.name)


class PartlyRightDrafter(ScriptedDrafter):
    """Guesses a random number of tokens, which may be none. They are right at first and then wrong."""

    name = "partly-right"

    def guess(self, future: list[int], window: int) -> Draft:
        size, num_right = self.random.randint(0, window), self.random.randint(0, window)
        tokens = [
            future[depth] if depth < min(num_right, len(future)) else self.wrong(future, depth) for depth in range(size)
        ]
        return Draft.chain(tokens, self.name)


class TreeDrafter(ScriptedDrafter):
    """Guesses random trees. Each node hangs below a random earlier node, and is right with a probability of 0.6 if the
    answer is long enough."""

    name = "tree"

    def guess(self, future: list[int], window: int) -> Draft:
        tokens: list[int] = []
        parents: list[int | None] = []
        depths: list[int] = []
        for node in range(self.random.randint(0, window)):
            parent = self.random.choice([None, *range(node), *range(max(0, node - 2), node)])
            depth = 0 if parent is None else depths[parent] + 1
            siblings = {tokens[i] for i in range(node) if parents[i] == parent}
            is_right = depth < len(future) and self.random.random() < 0.6
            token_id = future[depth] if is_right else self.wrong(future, depth)
            while token_id in siblings:
                token_id = (token_id + 1) % self.vocab_size
            tokens.append(token_id)
            parents.append(parent)
            depths.append(depth)
        return Draft(tuple(tokens), tuple(parents), (0.5,) * len(tokens), self.name)


class FailingDrafter(ScriptedDrafter):
    """Raises when it is asked for drafts for the third time."""

    name = "failing"

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        self.num_drafted += 1
        if self.num_drafted == 3:
            raise RuntimeError("the scripted failure")
        return Proposals([Draft() for _ in sequences])


class FailingReader(WrongDrafter):
    """A drafter that is not free and raises when it is asked how many tokens it has not read yet."""

    name = "failing-reader"
    is_free = False

    def num_missed(self, sequence: Sequence) -> int | None:
        raise RuntimeError("the scripted failure")
