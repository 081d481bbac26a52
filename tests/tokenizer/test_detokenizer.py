"""`IncrementalDetokenizer`: all pieces together are the text of all bytes, and no piece has half a character."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.tokenizer import IncrementalDetokenizer, Tokenizer

CHARACTERS = ["é", "ß", "न", "한", "中", "👩‍👩‍👧", "🏳️‍🌈", "𓀀"]


def _pieces(tokenizer: Tokenizer, token_ids: list[int], prompt: list[int]) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, prompt)
    return [*(detokenizer.append(token_id) for token_id in token_ids), detokenizer.flush()]


@given(token_ids=st.lists(st.integers(0, 49151), max_size=40))
@settings(max_examples=150, deadline=None)
def test_pieces_of_any_tokens_are_the_decoded_text(smollm2: Tokenizer, token_ids: list[int]) -> None:
    assert "".join(_pieces(smollm2, token_ids, [])) == smollm2.decode(token_ids)


@given(token_ids=st.lists(st.integers(0, 300), max_size=40))
@settings(max_examples=150, deadline=None)
def test_pieces_of_any_bytes_are_the_decoded_text(sentence_piece: Tokenizer, token_ids: list[int]) -> None:
    assert "".join(_pieces(sentence_piece, token_ids, [])) == sentence_piece.decode(token_ids)


@given(data=st.binary(max_size=30))
@settings(max_examples=200, deadline=None)
def test_bytes_decode_as_python_decodes_them(sentence_piece: Tokenizer, data: bytes) -> None:
    token_ids = [3 + byte for byte in data]
    assert "".join(_pieces(sentence_piece, token_ids, [1, 400])) == data.decode("utf-8", "replace")


@pytest.mark.parametrize("text", CHARACTERS)
def test_a_character_appears_with_its_last_byte(sentence_piece: Tokenizer, text: str) -> None:
    data = text.encode()
    pieces = _pieces(sentence_piece, [3 + byte for byte in data], [1, 400])
    shown = "".join(pieces)
    assert shown == text
    for index in range(len(data)):
        assert "".join(pieces[: index + 1]) == data[: index + 1].decode("utf-8", "ignore")


def test_an_unfinished_character_is_replaced_at_the_end_only(sentence_piece: Tokenizer) -> None:
    first, second = ([3 + byte for byte in "é中".encode()[:4]], [3 + ord("x")])
    assert _pieces(sentence_piece, first, [400]) == ["", "é", "", "", "\ufffd"]
    assert _pieces(sentence_piece, first + second, [400]) == ["", "é", "", "", "\ufffdx", ""]


def test_a_flush_leaves_nothing_behind(sentence_piece: Tokenizer) -> None:
    detokenizer = IncrementalDetokenizer(sentence_piece, [400])
    assert detokenizer.append(3 + 0xE4) == ""
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""
    assert detokenizer.append(3 + 0x41) == "A"


def test_special_tokens_do_not_break_a_character(smollm2: Tokenizer) -> None:
    half = smollm2.encode("𓀀", parse_special=False)
    assert len(half) > 1
    assert "".join(_pieces(smollm2, [half[0], 2, *half[1:]], [])) == "𓀀"


def test_the_leading_space_is_dropped_only_where_the_text_begins(sentence_piece: Tokenizer) -> None:
    hello = sentence_piece.encode("hello there", parse_special=False)
    assert "".join(_pieces(sentence_piece, hello, [])) == "hello there"
    assert "".join(_pieces(sentence_piece, hello, [1])) == "hello there"
    assert "".join(_pieces(sentence_piece, hello, [1, hello[0]])) == " hello there"
    assert "".join(_pieces(sentence_piece, [1, 2, *hello], [])) == "hello there"


def test_user_defined_tokens_are_shown(sentence_piece: Tokenizer) -> None:
    token_ids = sentence_piece.encode("<custom>\n\n</s>", parse_special=True)
    assert _pieces(sentence_piece, token_ids, [400]) == ["<custom>", "\n\n", "", ""]
