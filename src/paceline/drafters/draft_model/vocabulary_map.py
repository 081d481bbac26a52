"""`VocabularyMap`: which tokens of two vocabularies are the same string, for a draft model with another tokenizer.

Two tokens with text are the same if their bytes are equal. Two control tokens are the same if their spellings are
equal. The tokens that end a text are always the same. This module knows neither models nor sequences.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.core.errors import VocabularyMismatchError
from paceline.tokenizer import Tokenizer

NUM_FREQUENT_TOKENS = 8192
MIN_SHARE = 0.5
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many of one vocabulary's most frequent tokens the other one has too. The lowest ids are the most frequent.

    Single bytes and tokens without text do not count. Nearly every vocabulary has all bytes but rarely uses them.
    """

    num_shared: int
    num_tokens: int

    @property
    def share(self) -> float:
        """The share of the frequent tokens that the other vocabulary has; 0 if there are no such tokens."""
        return self.num_shared / max(1, self.num_tokens)


class VocabularyMap:
    """The pairs of tokens that are the same for the target and the draft model. Each token has at most one partner.

    `draft_ids` maps the target's ids to the draft's. `columns` [the draft's vocab_size] holds the column of each draft
    token in a row of logits that is ordered by the target's ids. Draft tokens that the target lacks have the columns
    from `target_size` on. `exchanges_all` says that every target token with text has a partner, as in a family whose
    larger models only have more padding. No text is then tokenized again.
    """

    def __init__(self, target: Tokenizer, draft: Tokenizer) -> None:
        target_texts, draft_texts = _texts(target), _texts(draft)
        target_ids = _ids_by_text(target, target_texts)
        draft_ids = _ids_by_text(draft, draft_texts)
        self.target_size = target.vocab_size
        self.target_overlap = _overlap(target_texts, draft_ids)
        self.draft_overlap = _overlap(draft_texts, target_ids)
        self.draft_ids = {target_ids[text]: draft_id for text, draft_id in draft_ids.items() if text in target_ids}
        self.draft_ids |= _shared_control_ids(target, draft, target_texts, draft_texts)
        self.exchanges_all = all(not text or token_id in self.draft_ids for token_id, text in enumerate(target_texts))
        self._pair_ends(target, draft)
        self.columns = self._columns(draft.vocab_size)
        self._target = target
        self._draft = draft
        self._draft_byte_ids = {text[0]: draft_id for text, draft_id in draft_ids.items() if len(text) == 1}
        self._end_ids = target.eos_token_ids - self.draft_ids.keys() if draft.eos_token_id is not None else frozenset()

    @property
    def is_useful(self) -> bool:
        """Whether each vocabulary has at least half of the other one's frequent tokens."""
        return min(self.target_overlap.share, self.draft_overlap.share) >= MIN_SHARE

    @property
    def width(self) -> int:
        """The number of columns of a row of logits with all tokens of both vocabularies."""
        return self.target_size + len(self.columns) - len(self.draft_ids)

    def draft_id(self, token_id: int) -> int | None:
        """Returns the draft's token that replaces the target's in a text, None if there is none."""
        return self._draft.eos_token_id if token_id in self._end_ids else self.draft_ids.get(token_id)

    def target_text(self, token_id: int) -> bytes:
        """Returns the bytes that the target's token adds to a text; none for a control token or padding."""
        return self._target.text_bytes(token_id) if token_id < self.target_size else b""

    def encode(self, text: bytes) -> list[int]:
        """Returns the draft's tokens of a piece of text. Bytes that are not whole characters become byte tokens. They
        are left out if the draft has no such token."""
        token_ids: list[int] = []
        while text:
            try:
                return token_ids + self._draft.encode_within(text.decode())
            except UnicodeDecodeError as error:
                token_ids += self._draft.encode_within(text[: error.start].decode())
                stray = text[error.start : error.end]
                token_ids += [self._draft_byte_ids[byte] for byte in stray if byte in self._draft_byte_ids]
                text = text[error.end :]
        return token_ids

    def length_of_beginning(self, token_ids: list[int]) -> int:
        """Returns the number of leading tokens that the target's tokenizer puts before every text."""
        leading = list(self._target.leading_token_ids)
        return len(leading) if token_ids[: len(leading)] == leading else 0

    @property
    def beginning(self) -> tuple[int, ...]:
        """The tokens that the draft's tokenizer puts before every text."""
        return self._draft.leading_token_ids

    def _pair_ends(self, target: Tokenizer, draft: Tokenizer) -> None:
        """Pairs the tokens that end a text, if neither has a partner yet."""
        target_id, draft_id = target.eos_token_id, draft.eos_token_id
        if target_id is None or draft_id is None or target_id in self.draft_ids:
            return
        if draft_id not in self.draft_ids.values():
            self.draft_ids[target_id] = draft_id

    def _columns(self, draft_size: int) -> npt.NDArray[np.int64]:
        columns = np.full(draft_size, self.target_size, np.int64)
        is_shared = np.zeros(draft_size, bool)
        for target_id, draft_id in self.draft_ids.items():
            columns[draft_id] = target_id
            is_shared[draft_id] = True
        columns[~is_shared] += np.arange(draft_size - len(self.draft_ids))
        return columns


def _texts(tokenizer: Tokenizer) -> list[bytes]:
    return [tokenizer.text_bytes(token_id) for token_id in range(tokenizer.vocab_size)]


def _ids_by_text(tokenizer: Tokenizer, texts: list[bytes]) -> dict[bytes, int]:
    """Returns the id of each text. If a byte token and another token have this text, it is the id of the other."""
    spelled = set(tokenizer.byte_token_ids)
    ordered = sorted(range(len(texts)), key=lambda token_id: (token_id not in spelled, -token_id))
    return {texts[token_id]: token_id for token_id in ordered if texts[token_id]}


def _shared_control_ids(
    target: Tokenizer, draft: Tokenizer, target_texts: list[bytes], draft_texts: list[bytes]
) -> dict[int, int]:
    """Returns the draft's id of each target control token with the same spelling, by the target's id."""
    draft_ids = {draft.token_bytes(token_id): token_id for token_id in _control_ids(draft, draft_texts)}
    spellings = {token_id: target.token_bytes(token_id) for token_id in _control_ids(target, target_texts)}
    return {token_id: draft_ids[text] for token_id, text in spellings.items() if text in draft_ids}


def _control_ids(tokenizer: Tokenizer, texts: list[bytes]) -> Iterable[int]:
    return (token_id for token_id in tokenizer.special_token_ids if not texts[token_id])


def _overlap(texts: list[bytes], others: dict[bytes, int]) -> Overlap:
    frequent = [text for text in texts if len(text) > 1][:NUM_FREQUENT_TOKENS]
    return Overlap(sum(text in others for text in frequent), len(frequent))


def map_vocabularies(target_name: str, target: Tokenizer, draft_name: str, draft: Tokenizer) -> VocabularyMap | None:
    """Returns the map from the target's tokens to the draft model's, None if the vocabularies are the same.

    Raises VocabularyMismatchError if they have too few tokens in common for useful drafts.
    """
    if draft.vocabulary_hash == target.vocabulary_hash:
        return None
    vocabularies = VocabularyMap(target, draft)
    of_target, of_draft = vocabularies.target_overlap, vocabularies.draft_overlap
    if not vocabularies.is_useful:
        raise VocabularyMismatchError(
            f"draft model {draft_name} has another vocabulary than {target_name}, and they share too few tokens: "
            f"{of_target.num_shared} of the target's {of_target.num_tokens} most frequent tokens of several bytes, and "
            f"{of_draft.num_shared} of the draft's {of_draft.num_tokens}, but at least half of each are needed; "
            "choose a draft model of the same family, or --drafters suffix"
        )
    draft.prepare()
    _logger.info(
        "draft model %s has another vocabulary: it has %.0f %% of the target's frequent tokens, and the target has "
        "%.0f %% of the draft model's",
        draft_name,
        100 * of_target.share,
        100 * of_draft.share,
    )
    return vocabularies
