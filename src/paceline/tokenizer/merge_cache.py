"""`MergeCache`: keeps the merges derived from a SentencePiece vocabulary in a file of a few megabytes.

A file holds the sha256 of its content and then the content: pairs of token ids as little-endian uint32. If a file is
damaged or cannot be written, the merges are derived again.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paceline.checkpoint.atomic_file import write_atomically
from paceline.tokenizer.vocabulary import Vocabulary

_DIGEST_SIZE = 32
_logger = logging.getLogger(__name__)


class MergeCache:
    """The cached merges of one vocabulary; with `directory` None, nothing is kept."""

    def __init__(self, directory: Path | None, vocabulary: Vocabulary) -> None:
        self._path = None if directory is None else directory / f"{_key(vocabulary)}.merges"

    def load(self, vocab_size: int) -> npt.NDArray[np.uint32] | None:
        """Returns pairs of ids below `vocab_size`, uint32 [num_merges, 2]; None where there is no sound file."""
        if self._path is None:
            return None
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _logger.warning("cannot read %s (%s); deriving the tokenizer's merges again", self._path, error.strerror)
            return None
        pairs = _decode(content)
        if pairs is None or pairs.max(initial=0) >= vocab_size:
            _logger.warning("%s is damaged; deriving the tokenizer's merges again", self._path)
            return None
        return pairs

    def save(self, pairs: npt.NDArray[np.uint32]) -> None:
        """Writes the file atomically; a failure is logged."""
        if self._path is None:
            return
        payload = pairs.astype("<u4").tobytes()
        try:
            write_atomically(self._path, hashlib.sha256(payload).digest() + payload)
        except OSError as error:
            _logger.warning("cannot write %s (%s); the next start is slower", self._path, error.strerror)


def _key(vocabulary: Vocabulary) -> str:
    digest = hashlib.sha256(vocabulary.hash.encode())
    if vocabulary.scores is not None:
        digest.update(vocabulary.scores.tobytes())
    return digest.hexdigest()[:32]


def _decode(content: bytes) -> npt.NDArray[np.uint32] | None:
    digest, payload = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    if len(payload) % 8 != 0 or hashlib.sha256(payload).digest() != digest:
        return None
    return np.frombuffer(payload, "<u4").astype(np.uint32).reshape(-1, 2)
