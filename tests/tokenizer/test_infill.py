"""Which tokens of a vocabulary fill in text, and the prompt that they make."""

from __future__ import annotations

import pytest

from paceline.tokenizer.infill import InfillTokens, find_infill_tokens

QWEN = {"<|fim_prefix|>": 1, "<|fim_suffix|>": 2, "<|fim_middle|>": 3, "<|repo_name|>": 4, "<|file_sep|>": 5}
STARCODER = {"<fim_prefix>": 6, "<fim_suffix>": 7, "<fim_middle>": 8}


def letters(text: str) -> list[int]:
    return [100 + ord(letter) for letter in text]


@pytest.mark.parametrize(
    ("ids", "named", "expected"),
    [
        (QWEN, {}, InfillTokens(prefix=1, suffix=2, middle=3, repository=4, file_separator=5)),
        (STARCODER, {}, InfillTokens(prefix=6, suffix=7, middle=8)),
        ({}, {}, None),
        ({"<|fim_prefix|>": 1, "<|fim_suffix|>": 2}, {}, None),
        ({"<|fim_prefix|>": 1, "<|fim_suffix|>": 2} | STARCODER, {}, InfillTokens(prefix=6, suffix=7, middle=8)),
        (
            QWEN,
            {"fim_pre_token_id": 11, "fim_suf_token_id": 12, "fim_mid_token_id": 13, "fim_sep_token_id": 14},
            InfillTokens(prefix=11, suffix=12, middle=13, repository=4, file_separator=14),
        ),
    ],
)
def test_the_tokens_are_named_by_the_file_or_spelled_as_usual(
    ids: dict[str, int], named: dict[str, int], expected: InfillTokens | None
) -> None:
    assert find_infill_tokens(ids, named.get) == expected


def test_the_prompt_has_prefix_suffix_and_middle() -> None:
    tokens = InfillTokens(prefix=1, suffix=2, middle=3)
    assert tokens.prompt(letters, "ab", "c") == [1, *letters("ab"), 2, *letters("c"), 3]
    assert tokens.prompt(letters, "", "") == [1, 2, 3]


def test_other_files_come_first_if_the_model_has_tokens_for_them() -> None:
    files = [("a.py", "x"), ("b.py", "y")]
    tokens = InfillTokens(prefix=1, suffix=2, middle=3, repository=4, file_separator=5)
    before = [4, *letters("project\n"), 5, *letters("a.py\nx\n"), 5, *letters("b.py\ny\n"), 5]
    assert tokens.prompt(letters, "p", "s", files) == [*before, *tokens.prompt(letters, "p", "s")]
    without = InfillTokens(prefix=1, suffix=2, middle=3)
    assert without.prompt(letters, "p", "s", files) == without.prompt(letters, "p", "s")
