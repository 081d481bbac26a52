"""Tests what a model file may say about its tokenizer, and the errors for everything else."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from paceline.core.errors import CheckpointError, UnsupportedModelError
from paceline.tokenizer import Tokenizer
from paceline.tokenizer.pre_tokenizers import find_pre_tokenizer
from tests.tokenizer.vocabulary_files import tokenizer_metadata

SMALL = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["a", "b", "ab", "<|im_end|>"],
    "tokenizer.ggml.token_type": [1, 1, 1, 3],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 3,
}


def _tokenizer(**changes: object) -> Tokenizer:
    return Tokenizer.from_metadata(tokenizer_metadata(SMALL, **changes), None)


def test_a_small_vocabulary() -> None:
    tokenizer = _tokenizer()
    assert tokenizer.vocab_size == 4
    assert tokenizer.encode("abba", parse_special=False) == [2, 1, 0]
    assert tokenizer.bos_token_id is None
    assert tokenizer.eos_token_ids == {3}
    assert not tokenizer.has_chat_template


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "the model file has no tokenizer"),
        ({"model": 7}, "tokenizer.ggml.model is 7, not a text"),
        ({"tokens": None}, "tokenizer.ggml.tokens is not a list of texts"),
        ({"tokens": []}, "vocabulary is empty"),
        ({"tokens": ["a", 1, "ab", "c"]}, "tokenizer.ggml.tokens is not a list of texts"),
        ({"tokens": ["a", "b", "a", "c"]}, "token 'a' is in the vocabulary twice"),
        ({"token_type": [1, 1]}, "tokenizer.ggml.token_type does not hold a number for each of 4 tokens"),
        ({"token_type": ["a"] * 4}, "tokenizer.ggml.token_type does not hold a number for each of 4 tokens"),
        ({"token_type": [[1], [1, 2], [3], [4]]}, "tokenizer.ggml.token_type is not a list of numbers"),
        ({"merges": None}, "tokenizer.ggml.merges is not a list of texts"),
        ({"eos_token_id": "3"}, "tokenizer.ggml.eos_token_id is '3', not a token id"),
        ({"add_bos_token": 1}, "tokenizer.ggml.add_bos_token is 1, not true or false"),
        ({"add_bos_token": True}, "add_bos_token is set but there is no bos_token_id"),
        ({"tokens": ["a", "<0x1>", "ab", "c"], "token_type": [1, 6, 1, 1]}, "'<0x1>' stands for a byte by its type"),
        ({"tokens": ["a", "b", "ab", "<0x4142>"], "token_type": [1, 1, 1, 6]}, "'<0x4142>' .* not spelt <0x00>"),
        ({"token_type": [1, 1, 6, 3]}, "token 'ab' stands for a byte by its type"),
        ({"model": "llama"}, "tokenizer.ggml.scores does not hold a number for each of 4 tokens"),
    ],
)
def test_malformed_metadata_is_an_error(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        _tokenizer(**changes)


@pytest.mark.parametrize("merge", ["ab", "a c", " a b"])
def test_merges_that_do_not_fit_the_tokens_are_an_error(merge: str) -> None:
    with pytest.raises(CheckpointError, match="the model file's tokenizer is corrupt"):
        _tokenizer(merges=[merge]).prepare()


@pytest.mark.parametrize("key", ["tokenizer.chat_template", "tokenizer.chat_template.tool_use"])
def test_a_chat_template_that_is_no_text_is_an_error(key: str) -> None:
    with pytest.raises(CheckpointError, match=f"{key} is not a text"):
        Tokenizer.from_metadata({**SMALL, key: 1}, None)


def test_an_unknown_algorithm_is_named() -> None:
    with pytest.raises(UnsupportedModelError, match=r"tokenizer model 't5' is not supported; .* one of gpt2, llama"):
        _tokenizer(model="t5")


def test_an_unknown_pre_tokenizer_is_named() -> None:
    with pytest.raises(UnsupportedModelError, match=r"pre-tokenizer 'kimi-k2' is not supported; .*qwen2"):
        _tokenizer(pre="kimi-k2")


def test_all_named_pre_tokenizers_are_found() -> None:
    names = ("qwen2", "smollm", "llama-bpe", "gpt-2", "default")
    assert {name: find_pre_tokenizer(name).adds_bos for name in names} == {name: name == "llama-bpe" for name in names}


def test_ids_outside_the_vocabulary_are_ignored() -> None:
    assert _tokenizer(eos_token_id=99).eos_token_ids == {3}
    assert _tokenizer(bos_token_id=2**32 - 1).bos_token_id is None


def test_control_tokens_are_known_by_spelling_whatever_their_type() -> None:
    tokenizer = _tokenizer(token_type=np.array([1, 1, 1, 1], np.int32), eos_token_id=None)
    assert tokenizer.eos_token_ids == {3}
    assert tokenizer.text_bytes(3) == b""
    assert tokenizer.encode("a<|im_end|>", parse_special=True) == [0, 3]


def test_named_ends_of_turn_and_message_end_a_generation() -> None:
    assert _tokenizer(eot_token_id=1, eom_token_id=2, fim_pad_token_id=0).eos_token_ids == {0, 1, 2, 3}


def test_the_end_of_a_message_is_not_the_end_where_a_format_has_several() -> None:
    tokens = ["a", "<|return|>", "<|call|>", "<|end|>"]
    assert _tokenizer(tokens=tokens, merges=[], eos_token_id=1).eos_token_ids == {1, 2}
    assert _tokenizer(tokens=["a", "b", "ab", "<|end|>"]).eos_token_ids == {3}


@pytest.mark.parametrize("spelling", ["<0x0A>", "<0x0a>"])
def test_a_byte_token_is_its_byte(spelling: str) -> None:
    tokenizer = _tokenizer(tokens=["a", "b", "ab", spelling], token_type=[1, 1, 1, 6])
    assert tokenizer.text_bytes(3) == b"\n"


def test_without_types_all_tokens_are_ordinary() -> None:
    metadata: Mapping[str, object] = {k: v for k, v in SMALL.items() if k != "tokenizer.ggml.token_type"}
    assert Tokenizer.from_metadata(metadata, None).text_bytes(2) == b"ab"
