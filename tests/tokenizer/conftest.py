"""Fixtures: the tokenizer of a real byte-level model, and a SentencePiece tokenizer with its words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from paceline.checkpoint import GgufFile
from paceline.tokenizer import Tokenizer
from paceline.tokenizer.byte_alphabet import byte_alphabet
from tests.tokenizer.vocabulary_files import sentence_piece_metadata, tokenizer_metadata


@pytest.fixture(scope="session")
def smollm2_metadata(smollm2_path: Path) -> Mapping[str, object]:
    """Returns the metadata of the SmolLM2 file."""
    with GgufFile.open(smollm2_path) as gguf:
        return gguf.metadata


@pytest.fixture(scope="session")
def smollm2(smollm2_metadata: Mapping[str, object]) -> Tokenizer:
    """Returns SmolLM2's tokenizer: byte-level, with a chat template, without a beginning-of-sequence token."""
    return Tokenizer.from_metadata(smollm2_metadata, None)


@pytest.fixture(scope="session")
def byte_level(smollm2_metadata: Mapping[str, object]) -> Tokenizer:
    """Returns SmolLM2's tokenizer with tokens for all bytes; the real one lacks bytes that its training never saw."""
    tokens, token_types = smollm2_metadata["tokenizer.ggml.tokens"], smollm2_metadata["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list)
    assert isinstance(token_types, np.ndarray)
    added = sorted(set(byte_alphabet()).difference(tokens))
    metadata = tokenizer_metadata(
        smollm2_metadata, tokens=[*tokens, *added], token_type=[*token_types.tolist(), *[1] * len(added)]
    )
    return Tokenizer.from_metadata(metadata, None)


@pytest.fixture(scope="session")
def sentence_piece(smollm2_metadata: Mapping[str, object]) -> Tokenizer:
    """Returns a SentencePiece tokenizer: merges by score, byte fallback, a space before the text, a
    beginning-of-sequence token, and no chat template."""
    return Tokenizer.from_metadata(sentence_piece_metadata(smollm2_metadata), None)
