"""`TokenTable`: the texts of a vocabulary in one block of memory, about a tenth of what a list of strings takes."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise


class TokenTable:
    """Token texts by id, as they stand in the model file (byte-level tokens in GPT-2's byte alphabet)."""

    def __init__(self, texts: Sequence[str]) -> None:
        encoded = [text.encode() for text in texts]
        self._block = b"".join(encoded)
        self._ends = array("I", accumulate(map(len, encoded), initial=0))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, token_id: int) -> str:
        return self._block[self._ends[token_id] : self._ends[token_id + 1]].decode()

    def texts(self) -> list[str]:
        """Returns all texts, by id."""
        return [self._block[start:end].decode() for start, end in pairwise(self._ends)]

    def hash(self) -> str:
        """Returns a sha256 of the texts in order, in hexadecimal."""
        return hashlib.sha256(self._ends.tobytes() + self._block).hexdigest()
