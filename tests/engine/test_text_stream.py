"""Tests when a text ends, token by token: the order of the checks, where the text is cut, and what counts as output."""

from __future__ import annotations

import pytest

from paceline.core import FinishReason, Request, SamplingParams
from paceline.engine.text_stream import Finish, TextStream

PROMPT = [104, 105]


def push_all(engines, tokens, max_output_tokens=100, **sampling):
    """Pushes tokens until one ends the text; returns the text, the number of tokens taken, and the finish."""
    request = Request(request_id="r", prompt_token_ids=PROMPT, sampling=SamplingParams(**sampling))
    stream = TextStream(request, engines.tokenizer, max_output_tokens)
    text = ""
    for number, token in enumerate(tokens, 1):
        progress = stream.push(token)
        text += progress.text
        if progress.finish is not None:
            return text, number, progress.finish
    return text, len(tokens), None


def test_tokens_become_text(engines):
    assert push_all(engines, b"hello") == ("hello", 5, None)


def test_the_last_token_for_length_counts(engines):
    assert push_all(engines, b"hello", max_output_tokens=3) == ("hel", 3, Finish(FinishReason.LENGTH))


def test_end_of_sequence_counts_but_has_no_text(engines):
    eos = next(iter(engines.tokenizer.eos_token_ids))
    assert push_all(engines, [*b"ab", eos, *b"c"]) == ("ab", 3, Finish(FinishReason.STOP))
    assert push_all(engines, [*b"ab", eos], max_output_tokens=3)[2] == Finish(FinishReason.STOP)


def test_end_of_sequence_can_be_ignored(engines):
    eos = next(iter(engines.tokenizer.eos_token_ids))
    assert push_all(engines, [*b"ab", eos, *b"c"], ignore_eos=True)[1:] == (4, None)


def test_a_stop_token_is_named_and_shown_only_where_asked(engines):
    finish = Finish(FinishReason.STOP, ord("b"))
    assert push_all(engines, b"abc", stop_token_ids=(ord("b"),)) == ("a", 2, finish)
    shown = push_all(engines, b"abc", stop_token_ids=(ord("b"),), include_stop_in_output=True)
    assert shown == ("ab", 2, finish)


@pytest.mark.parametrize(("include", "text"), [(False, "ab"), (True, "abcd")])
def test_a_stop_string_over_token_borders_cuts_the_text(engines, include, text):
    result = push_all(engines, b"abcdef", stop=("cd", "zz"), include_stop_in_output=include)
    assert result == (text, 4, Finish(FinishReason.STOP, "cd"))


def test_a_stop_string_in_the_middle_of_a_token_cuts_the_token(engines):
    token = next(i for i in range(256, engines.vocab_size) if len(engines.tokenizer.decode([i])) >= 3)
    word = engines.tokenizer.decode([token])
    result = push_all(engines, [*b"ab", token, *b"cd"], stop=(word[1],))
    assert result == ("ab" + word[0], 3, Finish(FinishReason.STOP, word[1]))


def test_what_could_begin_a_stop_string_is_held_back_until_it_is_decided(engines):
    request = Request(request_id="r", prompt_token_ids=PROMPT, sampling=SamplingParams(stop=("abc",)))
    stream = TextStream(request, engines.tokenizer, 4)
    assert [stream.push(token).text for token in b"xaba"] == ["x", "", "", "aba"]


def test_a_stop_string_wins_over_length(engines):
    assert push_all(engines, b"ab", max_output_tokens=2, stop=("b",)) == ("a", 2, Finish(FinishReason.STOP, "b"))


def test_half_a_character_is_held_back_and_shown_as_unknown_at_the_end(engines):
    euro = "€".encode()
    assert push_all(engines, euro) == ("€", 3, None)
    assert push_all(engines, euro[:2])[0] == ""
    assert push_all(engines, euro[:2], max_output_tokens=2) == ("\ufffd", 2, Finish(FinishReason.LENGTH))


def test_no_stop_is_looked_for_in_the_first_min_tokens(engines):
    result = push_all(engines, b"ababab", min_tokens=3, stop=("b",))
    assert result == ("aba", 4, Finish(FinishReason.STOP, "b"))
    assert push_all(engines, b"aaaa", min_tokens=3, stop_token_ids=(ord("a"),))[1] == 4
