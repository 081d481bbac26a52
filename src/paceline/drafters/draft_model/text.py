"""Converts a sequence's text to the draft model's tokens, and the draft model's logits to the target's token ids.

If both models have one vocabulary (`SameVocabulary`), text and logits stay as they are. If they have two
(`MappedVocabulary`), tokens that both have are exchanged, and the text between them is tokenized again. The draft
model's text may then have another length. This module knows neither models nor KV.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Protocol

from paceline.core import Sequence
from paceline.drafters.draft_model.vocabulary_map import VocabularyMap
from paceline.sampling.sampler import Logits, Sampler

MAX_RUN_TOKENS = 64
NUM_FIRST_TOKENS = 128  # of a long text, the draft model reads the first and last tokens (decision 023)
NUM_LAST_TOKENS = 128
MOST_UNREAD = NUM_FIRST_TOKENS + NUM_LAST_TOKENS


class DraftText(Protocol):
    """One sequence's text in the draft model's tokens. `update` adds the tokens that were committed since the last
    call, and returns how many of the leading tokens are unchanged."""

    @property
    def token_ids(self) -> list[int]:
        """The draft model's tokens at the last update."""
        ...

    def update(self) -> int:
        """Adds what was committed since the last call. The time is proportional to the new tokens."""
        ...


class ShortenedText:
    """A text in the draft model's tokens. `leave_out_middle` removes the tokens that the draft model does not read.

    The draft model then sees the beginning and the end as one text, without a gap in the positions. Its guesses are
    right less often with less text, but its prefill of a long text takes no longer than that of a short one.
    """

    def __init__(self, text: DraftText) -> None:
        self._text = text
        self._num_left_out = 0
        self.token_ids: list[int] = []

    def update(self) -> int:
        """Adds what was committed since the last call. Returns how many of the leading tokens are unchanged."""
        num_same = self._text.update()
        self.token_ids = shortened(self._text.token_ids, self._num_left_out)
        return max(min(num_same, NUM_FIRST_TOKENS), num_same - self._num_left_out)

    def leave_out_middle(self) -> None:
        """Keeps only the first and last tokens of the text so far. The first ones stay unchanged."""
        self._num_left_out = max(0, len(self._text.token_ids) - MOST_UNREAD)
        self.token_ids = shortened(self._text.token_ids, self._num_left_out)


def shortened(token_ids: list[int], num_left_out: int) -> list[int]:
    """Returns the tokens without the `num_left_out` tokens after the first `NUM_FIRST_TOKENS`. If that is 0, it returns
    the same list, not a copy."""
    if num_left_out == 0:
        return token_ids
    return token_ids[:NUM_FIRST_TOKENS] + token_ids[NUM_FIRST_TOKENS + num_left_out :]


class DraftVocabulary(Protocol):
    """How the draft model's tokens relate to the target's. `keeps_tokens` says that the draft model's tokens of a
    committed text never change as the text grows."""

    keeps_tokens: bool

    def text_of(self, sequence: Sequence) -> DraftText:
        """Returns the sequence's text in the draft model's tokens."""
        ...

    def target_rows(self, logits: Logits, sampler: Sampler) -> Logits:
        """Returns the logits in the order of the target's token ids. They may be valid only until the next call."""
        ...

    def draft_id(self, token_id: int) -> int | None:
        """Returns the draft model's id of a token sampled from `target_rows`, None if the target lacks the token."""
        ...


class SameText:
    """The sequence's own tokens."""

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence

    @property
    def token_ids(self) -> list[int]:
        """The committed text."""
        return self._sequence.token_ids

    def update(self) -> int:
        """Returns the number of tokens. There is nothing else to do, because committed tokens never change."""
        return len(self._sequence.token_ids)


class SameVocabulary:
    """Every token id means the same to both models."""

    keeps_tokens = True

    def text_of(self, sequence: Sequence) -> SameText:
        """Returns the sequence's own tokens."""
        return SameText(sequence)

    def target_rows(self, logits: Logits, sampler: Sampler) -> Logits:
        """Returns the logits unchanged."""
        return logits

    def draft_id(self, token_id: int) -> int | None:
        """Returns the token id unchanged."""
        return token_id


class MappedText:
    """The text as a `VocabularyMap` converts it. It depends only on the sequence's tokens, not on when they were added.

    Consecutive tokens that the draft model lacks, at most `MAX_RUN_TOKENS`, form a run and are tokenized together.
    While the run at the end grows, its tokens may change. Tokens before it never change.
    """

    def __init__(self, sequence: Sequence, vocabularies: VocabularyMap) -> None:
        self._sequence = sequence
        self._map = vocabularies
        self._token_ids = list(vocabularies.beginning)
        self._run_begin = vocabularies.length_of_beginning(sequence.token_ids)  # in the target's tokens
        self._num_settled = len(self._token_ids)  # tokens before the run
        self._num_seen = self._run_begin

    @property
    def token_ids(self) -> list[int]:
        """The draft model's tokens at the last update."""
        return self._token_ids

    def update(self) -> int:
        """Adds what was committed since the last call. Converts the run at the end of the earlier text again."""
        committed = self._sequence.token_ids
        if self._num_seen == len(committed):
            return len(self._token_ids)
        start = self._num_settled
        before = self._token_ids[start:]
        del self._token_ids[start:]
        run = self._settle(committed)
        self._token_ids += self._map.encode(run)
        self._num_seen = len(committed)
        return start + _common_length(before, self._token_ids[start:])

    def _settle(self, committed: list[int]) -> bytes:
        """Appends the tokens of everything before the run at the end, and returns that run's text."""
        run = b""
        for index in range(self._run_begin, len(committed)):
            draft_id = self._map.draft_id(committed[index])
            text = self._map.target_text(committed[index]) if draft_id is None else b""
            run += text
            if text and index + 1 - self._run_begin < MAX_RUN_TOKENS:
                continue
            self._token_ids += self._map.encode(run)
            if draft_id is not None:
                self._token_ids.append(draft_id)
            run = b""
            self._run_begin = index + 1
            self._num_settled = len(self._token_ids)
        return run


class MappedVocabulary:
    """Exchanges tokens by a `VocabularyMap`. Draft tokens that the target lacks have extra columns in the logits."""

    def __init__(self, vocabularies: VocabularyMap) -> None:
        self.keeps_tokens = vocabularies.exchanges_all
        self._map = vocabularies

    def text_of(self, sequence: Sequence) -> MappedText:
        """Returns the text in the draft model's tokens."""
        return MappedText(sequence, self._map)

    def target_rows(self, logits: Logits, sampler: Sampler) -> Logits:
        """Returns the logits in the order of the target's token ids, with minus infinity for tokens that the draft
        model lacks. Noise, penalties and bans go by token id, so they affect the same tokens as in the target."""
        return sampler.scatter(logits, self._map.columns, self._map.width)

    def draft_id(self, token_id: int) -> int | None:
        """Returns the draft model's id of the token; None for the extra columns, which the target lacks."""
        return self._map.draft_ids.get(token_id)


def _common_length(one: list[int], other: list[int]) -> int:
    """Returns how many leading items both have in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
