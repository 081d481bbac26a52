"""Compares `StopStringMatcher` with a search of the whole text, for many ways to cut the text into pieces."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.errors import InvalidRequestError
from paceline.tokenizer import StopStringMatcher

STOPS = st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=4).map(tuple)


def _naive(text: str, stop: tuple[str, ...], include_stop: bool) -> tuple[str, str | None]:
    """Reads the text character by character until it ends with a stop string, preferring the longest."""
    for end in range(1, len(text) + 1):
        complete = [candidate for candidate in stop if text[:end].endswith(candidate)]
        if complete:
            matched = max(complete, key=len)
            return text[: end if include_stop else end - len(matched)], matched
    return text, None


def _fed(pieces: list[str], stop: tuple[str, ...], include_stop: bool) -> tuple[str, str | None]:
    matcher = StopStringMatcher(stop, include_stop)
    shown, fed = "", ""
    for piece in pieces:
        match = matcher.feed(piece)
        shown, fed = shown + match.text, fed + piece
        if match.matched is not None:
            return shown, match.matched
        held = fed.removeprefix(shown)
        assert shown + held == fed
        assert held == "" or any(candidate.startswith(held) for candidate in stop)
    return shown + matcher.flush(), None


def _all_cuts(text: str) -> Iterator[list[str]]:
    for marks in itertools.product((False, True), repeat=max(0, len(text) - 1)):
        cuts = [0, *(i for i, is_cut in enumerate(marks, 1) if is_cut), len(text)]
        yield [text[start:end] for start, end in itertools.pairwise(cuts)]


@pytest.mark.parametrize("include_stop", [False, True])
@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("hello STOP more", ("STOP",)),
        ("aaab", ("aab",)),
        ("abababc", ("ababc",)),
        ("xabcabd", ("abcabd", "bca")),
        ("xabc", ("abc", "bc", "c")),
        ("abcd", ("abcd", "bc")),
        ("a\n\nb", ("\n\n", "\n\nb")),
        ("nothing", ("thingy", "nop")),
        ("", ("a",)),
        ("ab", ()),
        ("x👩‍👩‍👧y", ("👩‍👧",)),
    ],
)
def test_every_cut_gives_what_the_whole_text_gives(text: str, stop: tuple[str, ...], include_stop: bool) -> None:
    expected = _naive(text, stop, include_stop)
    assert [
        pieces for pieces in _all_cuts(text[:11]) if _fed([*pieces, text[11:]], stop, include_stop) != expected
    ] == []


@given(pieces=st.lists(st.text("ab\nc", max_size=5), max_size=12), stop=STOPS, include_stop=st.booleans())
@settings(max_examples=400, deadline=None)
def test_any_pieces_give_what_the_whole_text_gives(
    pieces: list[str], stop: tuple[str, ...], include_stop: bool
) -> None:
    assert _fed(pieces, stop, include_stop) == _naive("".join(pieces), stop, include_stop)


def test_nothing_is_held_back_without_need() -> None:
    matcher = StopStringMatcher(("</s>",), False)
    assert matcher.feed("a < b").text == "a < b"
    assert matcher.feed(" <").text == " "
    assert matcher.feed("/p>").text == "</p>"
    assert matcher.flush() == ""


def _seconds_to_feed(stop: tuple[str, ...], pieces: list[str]) -> float:
    matcher = StopStringMatcher(stop, False)
    start_s = time.process_time()
    for piece in pieces:
        matcher.feed(piece)
    return time.process_time() - start_s


def test_a_long_stop_string_costs_no_more_than_what_could_begin_it() -> None:
    assert _seconds_to_feed(("x" + "y" * 2_000_000,), ["some text "] * 300) < 1


def test_many_stop_strings_are_looked_for_in_new_text_only() -> None:
    held_throughout = "a" * 1023 + "c"
    others = tuple("a" * 250 + "b" + "a" * length for length in range(250, 313))
    assert _seconds_to_feed((*others, held_throughout), ["aaaa"] * 1500) < 2


@given(
    pieces=st.lists(st.text("ab", max_size=8), max_size=30),
    stop=st.lists(st.text("ab", min_size=6, max_size=20), min_size=20, max_size=64).map(tuple),
    include_stop=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_many_long_stop_strings_are_found_as_well(pieces: list[str], stop: tuple[str, ...], include_stop: bool) -> None:
    assert _fed(pieces, stop, include_stop) == _naive("".join(pieces), stop, include_stop)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="a stop string is empty") as caught:
        StopStringMatcher(("a", ""), False)
    assert caught.value.param == "stop"
