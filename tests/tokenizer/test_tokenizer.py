"""Tests `Tokenizer`: round trips, bytes of tokens, prompts, hashes, and texts that it refuses."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.core.errors import InvalidRequestError
from paceline.tokenizer import Tokenizer
from tests.tokenizer.text_corpus import SENTENCES, corpus_lines
from tests.tokenizer.vocabulary_files import tokenizer_metadata

TEXTS = st.one_of(
    st.text(),
    st.text("ab'sT \t\r\n\u00a0\u2028=0٣é👩‍🚀"),
    st.lists(st.sampled_from([*SENTENCES, "<|im_end|>", " ", "\n\n", "    "])).map("".join),
)


@given(text=TEXTS)
@settings(max_examples=150, deadline=None)
def test_byte_level_round_trip(byte_level: Tokenizer, text: str) -> None:
    assert byte_level.decode(byte_level.encode(text, parse_special=False)) == text


@given(text=TEXTS.filter(lambda text: "▁" not in text and "<custom>" not in text and "\n\n" not in text))
@settings(max_examples=150, deadline=None)
def test_sentence_piece_round_trip(sentence_piece: Tokenizer, text: str) -> None:
    token_ids = sentence_piece.encode(text, parse_special=False)
    assert sentence_piece.decode(token_ids) == text


@given(text=TEXTS)
@settings(max_examples=200, deadline=None)
def test_the_bytes_of_all_tokens_are_the_text(byte_level: Tokenizer, text: str) -> None:
    token_ids = byte_level.encode(text, parse_special=True)
    assert b"".join(map(byte_level.token_bytes, token_ids)) == text.encode()


def test_a_byte_without_a_token_is_left_out(smollm2: Tokenizer) -> None:
    assert smollm2.decode(smollm2.encode("a\x06b", parse_special=False)) == "ab"


@pytest.mark.parametrize("name", ["byte_level", "sentence_piece"])
@given(text=TEXTS, number=st.integers(0, 400), enough=st.integers(0, 500))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_text_has_at_least_the_tokens_that_it_is_said_to_have(
    name: str, request: pytest.FixtureRequest, text: str, number: int, enough: int
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)
    text *= number
    assert tokenizer.least_num_tokens(text, enough) <= len(tokenizer.encode_prompt(text))


def test_a_text_is_known_to_be_too_long_from_its_beginning(smollm2: Tokenizer) -> None:
    assert smollm2.least_num_tokens("1" * 10**6, 4000) > 4000
    assert smollm2.least_num_tokens("the wheel " * 10**5, 4000) > 4000
    assert smollm2.least_num_tokens(" " * 10**6, 4000) > 4000
    assert smollm2.least_num_tokens("1" * 4000, 4000) <= 4000


@pytest.mark.parametrize("text", ["1" * 5000, "the wheel\n" * 500, " " * 5000, "a" * 5000])
@pytest.mark.parametrize("name", ["byte_level", "sentence_piece"])
def test_a_long_text_has_the_tokens_of_its_parts(name: str, request: pytest.FixtureRequest, text: str) -> None:
    """The library encodes long texts with another function than short ones."""
    tokenizer: Tokenizer = request.getfixturevalue(name)
    token_ids = tokenizer.encode(text, parse_special=False)
    assert tokenizer.decode(token_ids) == text
    short = tokenizer.encode(text[:1000], parse_special=False)
    assert token_ids[: len(short) - 10] == short[:-10]


def test_other_threads_go_on_while_a_long_text_is_encoded(smollm2: Tokenizer) -> None:
    """The library holds Python's global lock during `encode`, so running that in a thread would not be enough."""
    smollm2.prepare()
    encoding = threading.Thread(target=smollm2.encode, args=("1" * 400_000,), kwargs={"parse_special": False})
    encoding.start()
    num_turns = 0
    while encoding.is_alive():
        time.sleep(0.001)
        num_turns += 1
    assert num_turns >= 10


def test_special_tokens_are_parsed_only_where_asked(smollm2: Tokenizer) -> None:
    text = "a<|im_end|>b"
    assert smollm2.encode(text, parse_special=True)[1] == 2
    assert 2 not in smollm2.encode(text, parse_special=False)


def test_control_tokens_have_bytes_but_no_text(smollm2: Tokenizer) -> None:
    assert smollm2.token_bytes(2) == b"<|im_end|>"
    assert smollm2.text_bytes(2) == b""
    assert smollm2.decode([1, *smollm2.encode("hi", parse_special=False), 2]) == "hi"


def test_sentence_piece_tokens_by_type(sentence_piece: Tokenizer) -> None:
    custom = sentence_piece.encode("<custom>", parse_special=False)
    assert [sentence_piece.token_bytes(token_id) for token_id in custom] == [b"<custom>"]
    assert sentence_piece.text_bytes(custom[0]) == b"<custom>"
    assert sentence_piece.token_bytes(3 + 0xE9) == b"\xe9"
    assert sentence_piece.text_bytes(1) == b""
    assert sentence_piece.decode(sentence_piece.encode("𓀀", parse_special=False)) == "𓀀"


def test_prompts_begin_with_the_beginning_token_where_the_model_wants_it(
    smollm2: Tokenizer, sentence_piece: Tokenizer
) -> None:
    assert smollm2.encode_prompt("hi") == smollm2.encode("hi", parse_special=True)
    assert sentence_piece.encode_prompt("hi") == [1, *sentence_piece.encode("hi", parse_special=True)]
    assert sentence_piece.encode_prompt("") == [1]
    assert sentence_piece.encode_prompt("<s>hi") == sentence_piece.encode_prompt("hi")
    assert sentence_piece.encode_prompt("<s><s>hi")[:2] == [1, 1]


def test_a_space_stands_before_text_after_special_tokens(sentence_piece: Tokenizer) -> None:
    alone = sentence_piece.encode("hello", parse_special=True)
    assert sentence_piece.encode("<s>hello", parse_special=True) == [1, *alone]
    assert sentence_piece.token_bytes(alone[0]).startswith(b" ")
    assert sentence_piece.decode(alone) == "hello"


@pytest.mark.parametrize("token_id", [-1, 49152])
def test_ids_outside_the_vocabulary_are_refused(smollm2: Tokenizer, token_id: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"token id {token_id} is not below the vocabulary's size, 49152"):
        smollm2.decode([token_id])


def test_half_surrogates_are_refused(smollm2: Tokenizer) -> None:
    with pytest.raises(InvalidRequestError, match="half of a surrogate pair at character 2"):
        smollm2.encode("ab\ud800", parse_special=False)


def test_unused_tokens_have_no_text(smollm2_metadata: Mapping[str, object]) -> None:
    metadata = tokenizer_metadata(smollm2_metadata, tokens=["[PAD0]", "a", "<custom>"], token_type=[5, 1, 4], merges=[])
    tokenizer = Tokenizer.from_metadata(metadata, None)
    assert [tokenizer.text_bytes(token_id) for token_id in range(3)] == [b"", b"a", b"<custom>"]
    assert tokenizer.token_bytes(0) == b"[PAD0]"


def test_the_hash_is_of_the_tokens_alone(smollm2: Tokenizer, smollm2_metadata: Mapping[str, object]) -> None:
    same = tokenizer_metadata(smollm2_metadata, eos_token_id=0, add_bos_token=True)
    assert Tokenizer.from_metadata(same, None).vocabulary_hash == smollm2.vocabulary_hash
    tokens = smollm2_metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    swapped = [*tokens[:-2], tokens[-1], tokens[-2]]
    other = Tokenizer.from_metadata(tokenizer_metadata(smollm2_metadata, tokens=swapped), None)
    assert other.vocabulary_hash != smollm2.vocabulary_hash


def test_threads_share_one_encoder(smollm2_metadata: Mapping[str, object]) -> None:
    tokenizer = Tokenizer.from_metadata(smollm2_metadata, None)
    lines = corpus_lines(200, ["<|im_end|>"])
    with ThreadPoolExecutor(4) as pool:
        token_ids = list(pool.map(lambda line: tokenizer.encode(line, parse_special=True), lines))
    assert token_ids == [tokenizer.encode(line, parse_special=True) for line in lines]
