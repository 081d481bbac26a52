"""`IncrementalDetokenizer`: turns tokens into text piece by piece, and never shows half a character."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Protocol


class TokenTexts(Protocol):
    """What a detokenizer needs from a tokenizer."""

    @property
    def has_space_prefix(self) -> bool:
        """Whether encoding puts a space before the first word, which decoding must remove again."""
        ...

    def text_bytes(self, token_id: int) -> bytes:
        """Returns the bytes that the token adds to a text; empty for tokens without text."""
        ...


class IncrementalDetokenizer:
    """Builds the text of the tokens that follow a prompt.

    Bytes that may still become a character are held back. Bytes that cannot become one are shown as U+FFFD, as Python's
    UTF-8 decoder does with `errors="replace"`. All pieces and the flush together equal the decoding of all bytes.
    """

    def __init__(self, tokenizer: TokenTexts, prompt_token_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_at_start = tokenizer.has_space_prefix and not any(map(tokenizer.text_bytes, prompt_token_ids))

    def append(self, token_id: int) -> str:
        """Returns the characters that this token completes, perhaps none."""
        piece = self._tokenizer.text_bytes(token_id)
        if self._is_at_start and piece:
            piece = piece.removeprefix(b" ")
            self._is_at_start = False
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """Returns what is held back: U+FFFD if a character was begun and never completed, otherwise nothing."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
