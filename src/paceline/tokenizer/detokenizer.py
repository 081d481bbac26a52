"""`IncrementalDetokenizer`: the text of a token sequence, piece by piece, never showing half a character."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Protocol


class TokenTexts(Protocol):
    """What a detokenizer needs of a tokenizer."""

    @property
    def has_space_prefix(self) -> bool:
        """Whether encoding puts a space before the first word, which decoding takes away again."""
        ...

    def text_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text; empty for tokens that have none."""
        ...


class IncrementalDetokenizer:
    """Text of the tokens that follow a prompt.

    Bytes that may still become a character are held back; bytes that cannot become one are shown as U+FFFD, as by
    Python's UTF-8 decoder with `errors="replace"`. All pieces and the flush together are what all bytes decode to.
    """

    def __init__(self, tokenizer: TokenTexts, prompt_token_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_at_start = tokenizer.has_space_prefix and not any(map(tokenizer.text_bytes, prompt_token_ids))

    def append(self, token_id: int) -> str:
        """The characters that this token completes, perhaps none."""
        piece = self._tokenizer.text_bytes(token_id)
        if self._is_at_start and piece:
            piece = piece.removeprefix(b" ")
            self._is_at_start = False
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """What is held back: U+FFFD for the beginning of a character that nothing completed, else nothing."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
