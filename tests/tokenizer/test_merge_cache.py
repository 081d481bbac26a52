"""The cache of derived merges is used if it is sound and rewritten if it is not. Its failures stop no tokenizer."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from paceline.tokenizer import Tokenizer
from tests.tokenizer.vocabulary_files import sentence_piece_metadata

TEXT = "hello there, this is it"


@pytest.fixture(scope="module")
def metadata(smollm2_metadata: Mapping[str, object]) -> dict[str, object]:
    return sentence_piece_metadata(smollm2_metadata)


@pytest.fixture(scope="module")
def token_ids(metadata: dict[str, object]) -> list[int]:
    return _encode(metadata, None)


def _encode(metadata: Mapping[str, object], cache_dir: Path | None) -> list[int]:
    return Tokenizer.from_metadata(metadata, cache_dir).encode(TEXT, parse_special=False)


def _only_file(directory: Path) -> Path:
    (path,) = directory.iterdir()
    return path


def test_the_second_tokenizer_reads_what_the_first_wrote(
    metadata: dict[str, object], token_ids: list[int], tmp_path: Path
) -> None:
    cache_dir = tmp_path / "new" / "tokenizers"
    assert _encode(metadata, cache_dir) == token_ids
    path = _only_file(cache_dir)
    no_merges = np.zeros(0, "<u4").tobytes()
    path.write_bytes(hashlib.sha256(no_merges).digest() + no_merges)
    assert len(_encode(metadata, cache_dir)) == len(TEXT) + 1


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "foreign"])
def test_a_damaged_file_is_replaced(
    damage: str,
    metadata: dict[str, object],
    token_ids: list[int],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _encode(metadata, tmp_path)
    path = _only_file(tmp_path)
    sound = path.read_bytes()
    beyond = np.array([[0, 10**6]], "<u4").tobytes()
    damaged = {
        "truncated": sound[:-5],
        "flipped": sound[:-1] + bytes([sound[-1] ^ 1]),
        "empty": b"",
        "foreign": hashlib.sha256(beyond).digest() + beyond,
    }
    path.write_bytes(damaged[damage])
    with caplog.at_level(logging.WARNING):
        assert _encode(metadata, tmp_path) == token_ids
    assert "is damaged; deriving the tokenizer's merges again" in caplog.text
    assert _only_file(tmp_path).read_bytes() == sound


def test_a_cache_that_cannot_be_used_is_no_error(
    metadata: dict[str, object], token_ids: list[int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with caplog.at_level(logging.WARNING):
        assert _encode(metadata, in_the_way) == token_ids
    assert "cannot write" in caplog.text
    assert in_the_way.read_text() == ""


def test_other_scores_have_another_file(metadata: dict[str, object], tmp_path: Path) -> None:
    scores = metadata["tokenizer.ggml.scores"]
    assert isinstance(scores, np.ndarray)
    _encode(metadata, tmp_path)
    _encode({**metadata, "tokenizer.ggml.scores": scores[::-1]}, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_byte_level_tokenizers_need_no_cache(smollm2_metadata: Mapping[str, object], tmp_path: Path) -> None:
    assert _encode(smollm2_metadata, tmp_path) == [28120, 665, 28, 451, 314, 357]
    assert list(tmp_path.iterdir()) == []
