"""`VocabularyMap`: which tokens of two vocabularies are the same string, for a draft model with another tokenizer.

Tokens with text are the same where their bytes are equal, control tokens where their spellings are, and the tokens
that end a text are the same whatever they are called. Nothing here knows models or sequences.
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
    """How many of one vocabulary's most frequent tokens, which are its lowest ids, the other one has too.

    Single bytes and tokens without text do not count: nearly every vocabulary has all bytes, and hardly uses them.
    """

    num_shared: int
    num_tokens: int

    @property
    def share(self) -> float:
        """The shared part of the frequent tokens; 0 where there are none."""
        return self.num_shared / max(1, self.num_tokens)


class VocabularyMap:
    """The pairs of tokens that mean the same to the target and to the draft model; at most one partner for each.

    `draft_ids` are the draft's tokens by the target's. `columns` [draft's vocab_size] says where in a row of logits by
    the target's ids each of the draft's tokens stands; those that the target lacks follow behind `target_size`.
    `exchanges_all` says that all of the target's tokens with text have a partner, as in a family whose larger models
    have more padding: nothing is then tokenized anew.
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
        """Whether both vocabularies have at least half of the other's frequent tokens."""
        return min(self.target_overlap.share, self.draft_overlap.share) >= MIN_SHARE

    @property
    def width(self) -> int:
        """Columns of a row of logits that has all tokens of both vocabularies."""
        return self.target_size + len(self.columns) - len(self.draft_ids)

    def draft_id(self, token_id: int) -> int | None:
        """The draft's token that stands for the target's in a text, None where it has none."""
        return self._draft.eos_token_id if token_id in self._end_ids else self.draft_ids.get(token_id)

    def target_text(self, token_id: int) -> bytes:
        """What the target's token adds to a text; nothing for a control token or one that is only padding."""
        return self._target.text_bytes(token_id) if token_id < self.target_size else b""

    def encode(self, text: bytes) -> list[int]:
        """The draft's tokens of a piece of text; bytes that are no whole characters become their byte tokens, and are
        left out where the draft has none."""
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
        """How many of the target's tokens are there because all its texts begin so."""
        leading = list(self._target.leading_token_ids)
        return len(leading) if token_ids[: len(leading)] == leading else 0

    @property
    def beginning(self) -> tuple[int, ...]:
        """What the draft's texts begin with."""
        return self._draft.leading_token_ids

    def _pair_ends(self, target: Tokenizer, draft: Tokenizer) -> None:
        """Lets the tokens that end a text stand for each other where their spellings did not pair them."""
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
    """Returns the ids of the tokens with text. One that stands for a byte yields to one that stands for a character."""
    spelled = set(tokenizer.byte_token_ids)
    ordered = sorted(range(len(texts)), key=lambda token_id: (token_id not in spelled, -token_id))
    return {texts[token_id]: token_id for token_id in ordered if texts[token_id]}


def _shared_control_ids(
    target: Tokenizer, draft: Tokenizer, target_texts: list[bytes], draft_texts: list[bytes]
) -> dict[int, int]:
    """The draft's control tokens by the target's of the same spelling."""
    draft_ids = {draft.token_bytes(token_id): token_id for token_id in _control_ids(draft, draft_texts)}
    spellings = {token_id: target.token_bytes(token_id) for token_id in _control_ids(target, target_texts)}
    return {token_id: draft_ids[text] for token_id, text in spellings.items() if text in draft_ids}


def _control_ids(tokenizer: Tokenizer, texts: list[bytes]) -> Iterable[int]:
    return (token_id for token_id in tokenizer.special_token_ids if not texts[token_id])


def _overlap(texts: list[bytes], others: dict[bytes, int]) -> Overlap:
    frequent = [text for text in texts if len(text) > 1][:NUM_FREQUENT_TOKENS]
    return Overlap(sum(text in others for text in frequent), len(frequent))


def map_vocabularies(target_name: str, target: Tokenizer, draft_name: str, draft: Tokenizer) -> VocabularyMap | None:
    """How the draft model's tokens relate to the target's; None where they are the same.

    Raises VocabularyMismatchError where they have too little in common for drafts to be of use.
    """
    if draft.vocabulary_hash == target.vocabulary_hash:
        return None
    vocabularies = VocabularyMap(target, draft)
    of_target, of_draft = vocabularies.target_overlap, vocabularies.draft_overlap
    if not vocabularies.is_useful:
        raise VocabularyMismatchError(
            f"draft model {draft_name} has another vocabulary than {target_name}, and too little of it in common: "
            f"{of_target.num_shared} of the target's {of_target.num_tokens} most frequent tokens of several bytes and "
            f"{of_draft.num_shared} of the draft's {of_draft.num_tokens}, where half of both are needed; choose a "
            "draft model of the same family, or --drafters suffix"
        )
    draft.prepare()
    _logger.info(
        "%s drafts by another vocabulary: it has %.0f %% of the target's frequent tokens, the target %.0f %% of "
        "its own",
        draft_name,
        100 * of_target.share,
        100 * of_draft.share,
    )
    return vocabularies
