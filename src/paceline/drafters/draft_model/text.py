"""A sequence's text as the draft model reads it, and the draft model's logits as the target's sampler reads them.

With one vocabulary for both (`SameVocabulary`) that is the sequence itself and the logits as they are. With two
(`MappedVocabulary`) tokens that both have are exchanged, and what lies between them is tokenized anew, so the draft
model's text may have another length. Neither knows models or KV.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Protocol

from paceline.core import Sequence
from paceline.drafters.draft_model.vocabulary_map import VocabularyMap
from paceline.sampling.sampler import Logits, Sampler

MAX_RUN_TOKENS = 64
NUM_FIRST_TOKENS = 128  # what the draft model reads of a long text: its first tokens, and its last (decision 023)
NUM_LAST_TOKENS = 128
MOST_UNREAD = NUM_FIRST_TOKENS + NUM_LAST_TOKENS


class DraftText(Protocol):
    """One sequence's text in the draft model's tokens. `update` follows what was committed since, and returns how many
    of the leading tokens are what they were."""

    @property
    def token_ids(self) -> list[int]:
        """As of the last update."""
        ...

    def update(self) -> int:
        """Reads on; costs what is new."""
        ...


class ShortenedText:
    """A text in the draft model's tokens, from which `leave_out_middle` takes what the draft model is not to read.

    The draft model then sees the beginning and the end as one text, with positions that have no gap. A guess from less
    of the text is right less often, but the draft model can start on a long text for the price of a short one.
    """

    def __init__(self, text: DraftText) -> None:
        self._text = text
        self._num_left_out = 0
        self.token_ids: list[int] = []

    def update(self) -> int:
        """Follows what was committed; returns how many of the leading tokens are what they were."""
        num_same = self._text.update()
        self.token_ids = shortened(self._text.token_ids, self._num_left_out)
        return max(min(num_same, NUM_FIRST_TOKENS), num_same - self._num_left_out)

    def leave_out_middle(self) -> None:
        """Keeps only the first and last tokens of the text so far. The first ones are what they were."""
        self._num_left_out = max(0, len(self._text.token_ids) - MOST_UNREAD)
        self.token_ids = shortened(self._text.token_ids, self._num_left_out)


def shortened(token_ids: list[int], num_left_out: int) -> list[int]:
    """Returns the tokens without as many of them after the first `NUM_FIRST_TOKENS`; a copy only where some are left
    out."""
    if num_left_out == 0:
        return token_ids
    return token_ids[:NUM_FIRST_TOKENS] + token_ids[NUM_FIRST_TOKENS + num_left_out :]


class DraftVocabulary(Protocol):
    """How the draft model's tokens relate to the target's. `keeps_tokens` says that what was committed never becomes
    other tokens of the draft model's."""

    keeps_tokens: bool

    def text_of(self, sequence: Sequence) -> DraftText:
        """The sequence's text."""
        ...

    def target_rows(self, logits: Logits, sampler: Sampler) -> Logits:
        """Logits by the target's token ids; may be valid until the next call only."""
        ...

    def draft_id(self, token_id: int) -> int | None:
        """The draft model's token for what was sampled from `target_rows`; None where the target has no such token."""
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
        """Nothing to do: committed tokens stay."""
        return len(self._sequence.token_ids)


class SameVocabulary:
    """Every token id means the same to both models."""

    keeps_tokens = True

    def text_of(self, sequence: Sequence) -> SameText:
        """The sequence as it is."""
        return SameText(sequence)

    def target_rows(self, logits: Logits, sampler: Sampler) -> Logits:
        """The logits as they are."""
        return logits

    def draft_id(self, token_id: int) -> int | None:
        """The token itself."""
        return token_id


class MappedText:
    """The text through a `VocabularyMap`; it depends on the sequence's tokens and not on when they came.

    A run of tokens that the draft model lacks, of at most `MAX_RUN_TOKENS`, is tokenized as one piece, so while it
    grows its tokens may change. Those before it never do.
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
        """The draft model's tokens, as of the last update."""
        return self._token_ids

    def update(self) -> int:
        """Reads the tokens that were committed since, and the run before them once more."""
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
        """Appends the tokens of all but a run at the end, and returns that run's text."""
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
    """Tokens are exchanged by a `VocabularyMap`; the draft model's that the target lacks keep a column of their own."""

    def __init__(self, vocabularies: VocabularyMap) -> None:
        self.keeps_tokens = vocabularies.exchanges_all
        self._map = vocabularies

    def text_of(self, sequence: Sequence) -> MappedText:
        """The text in the draft model's tokens."""
        return MappedText(sequence, self._map)

    def target_rows(self, logits: Logits, sampler: Sampler) -> Logits:
        """The logits where the target has the token, minus infinity for tokens that the draft model lacks. Noise,
        penalties and bans, which go by token id, then meet the tokens that they meet in the target."""
        return sampler.scatter(logits, self._map.columns, self._map.width)

    def draft_id(self, token_id: int) -> int | None:
        """None for the columns behind the target's vocabulary."""
        return self._map.draft_ids.get(token_id)


def _common_length(one: list[int], other: list[int]) -> int:
    """Returns how many leading items both have in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
