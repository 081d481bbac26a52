"""Compares `SpecialTokens` with a search that tries every spelling at every character."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.tokenizer.special_tokens import SpecialTokens

SPELLINGS = st.dictionaries(st.text("<a>\n-]^", min_size=1, max_size=4), st.integers(0, 99), max_size=6)


def _naive(ids_by_text: Mapping[str, int], text: str) -> list[str | int]:
    parts: list[str | int] = []
    plain = ""
    position = 0
    while position < len(text):
        found = [spelling for spelling in ids_by_text if text.startswith(spelling, position)]
        if not found:
            plain += text[position]
            position += 1
            continue
        longest = max(found, key=len)
        parts += [plain, ids_by_text[longest]] if plain else [ids_by_text[longest]]
        plain = ""
        position += len(longest)
    return [*parts, plain] if plain else parts


@given(ids_by_text=SPELLINGS, text=st.text("<a>\n-]^x", max_size=30))
@settings(max_examples=400, deadline=None)
def test_the_leftmost_longest_spelling_counts(ids_by_text: dict[str, int], text: str) -> None:
    assert list(SpecialTokens(ids_by_text).split(text)) == _naive(ids_by_text, text)


def test_runs_are_cut_into_the_longest_tokens() -> None:
    runs = SpecialTokens({"\n" * length: length for length in range(1, 32)})
    assert list(runs.split("a" + "\n" * 70 + "b")) == ["a", 31, 31, 8, "b"]


def test_without_special_tokens_a_text_is_one_piece() -> None:
    assert list(SpecialTokens({}).split("<|im_end|>")) == ["<|im_end|>"]
    assert list(SpecialTokens({}).split("")) == []
