"""Tests where tokens begin in the answer's text, and which tokens belong to a text that a stop string ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paceline.checkpoint import GgufFile
from paceline.core import FinishReason, Output, TokenLogprob
from paceline.gateway.logprob_places import LogprobPlacer
from paceline.gateway.openai.logprobs import completion_logprobs
from paceline.tokenizer import Tokenizer
from tests.support.tiny_gguf import TinyPair


@pytest.fixture(scope="module")
def tokenizer(tiny_pair: TinyPair) -> Iterator[Tokenizer]:
    with GgufFile.open(tiny_pair.target) as gguf:
        yield Tokenizer.from_gguf(gguf, None)


def output(token_ids: list[int], text: str, **fields: object) -> Output:
    logprobs = [TokenLogprob(token_id, -1.0) for token_id in token_ids]
    return Output(
        request_id="r", epoch=0, first_token_index=0, token_ids=token_ids, text=text, logprobs=logprobs, **fields
    )


def offsets(placer: LogprobPlacer, *outputs: Output) -> list[list[int]]:
    return [[placed.text_offset for placed in placer.add(one)] for one in outputs]


def test_all_tokens_of_one_character_begin_where_it_does(tokenizer: Tokenizer) -> None:
    """The first 256 ids of the tiny vocabulary are bytes; the Chinese character takes three of them."""
    token_ids = list("a漢bé!".encode())
    news = output(token_ids, "a漢bé!", finish_reason=FinishReason.LENGTH)
    assert offsets(LogprobPlacer(tokenizer, [65]), news) == [[0, 1, 1, 1, 2, 3, 3, 4]]
    placed = LogprobPlacer(tokenizer, [65]).add(news)
    assert completion_logprobs(placed)["text_offset"] == [0, 1, 1, 1, 2, 3, 3, 4]


def test_offsets_go_on_from_output_to_output(tokenizer: Tokenizer) -> None:
    first, second = "漢".encode()[:2], "漢".encode()[2:]
    news = [
        output(list(b"x" + first), "x"),
        output(list(second + b"y"), "漢y"),
        output(list(b"z"), "z", finish_reason=FinishReason.LENGTH),
    ]
    assert offsets(LogprobPlacer(tokenizer, []), *news) == [[0], [1, 1, 1, 2], [3]]


def test_bytes_that_are_no_character_have_the_place_of_their_replacement(tokenizer: Tokenizer) -> None:
    news = output([0xFF, 0x41, 0xE6], "\ufffdA\ufffd", finish_reason=FinishReason.LENGTH)
    assert offsets(LogprobPlacer(tokenizer, []), news) == [[0, 1, 2]]


def test_tokens_behind_a_stop_string_are_not_part_of_the_text(tokenizer: Tokenizer) -> None:
    """`cd` is a stop string. Its first letter is held back until the second shows that it is the stop string."""
    news = [
        output(list(b"abc"), "ab"),
        output(list(b"d"), "", finish_reason=FinishReason.STOP, stop_reason="cd"),
    ]
    assert offsets(LogprobPlacer(tokenizer, []), *news) == [[0, 1], []]


def test_tokens_that_were_held_back_come_with_their_text(tokenizer: Tokenizer) -> None:
    news = [output(list(b"abc"), "ab"), output(list(b"x"), "cx", finish_reason=FinishReason.LENGTH)]
    assert offsets(LogprobPlacer(tokenizer, []), *news) == [[0, 1], [2, 3]]


def test_the_token_that_ends_a_text_by_itself_is_told(tokenizer: Tokenizer) -> None:
    (end,) = [token_id for token_id in tokenizer.eos_token_ids if tokenizer.token_bytes(token_id) == b"<|im_end|>"]
    news = output([*b"ab", end], "ab", finish_reason=FinishReason.STOP)
    assert offsets(LogprobPlacer(tokenizer, []), news) == [[0, 1, 2]]
    stopped = output(list(b"abc"), "ab", finish_reason=FinishReason.STOP, stop_reason=ord("c"))
    assert offsets(LogprobPlacer(tokenizer, []), stopped) == [[0, 1]]
