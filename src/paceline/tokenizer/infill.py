"""`InfillTokens`: the tokens with which a model fills in the middle between two texts (FIM).

The prompt is prefix, suffix, middle: the model continues after the token `middle` with the text between the two. This
order is the one that models were trained on most (Bavarian and others, "Efficient Training of Language Models to Fill
in the Middle", 2022: PSM).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_SPELLINGS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    ("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>"),
    ("<PRE>", "<SUF>", "<MID>"),
    ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"),
)
"""How models spell the three tokens, if the file does not name their ids."""
_REPOSITORY_SPELLINGS = ("<|repo_name|>", "<|repo|>", "<repo_name>", "<reponame>")
_SEPARATOR_SPELLINGS = ("<|file_sep|>", "<|file_separator|>", "<file_sep>", "<filename>")


@dataclass(frozen=True, slots=True, kw_only=True)
class InfillTokens:
    """Token ids. `repository` and `file_separator` are None if the model has no such tokens; with them, other files can
    come before the prefix."""

    prefix: int
    suffix: int
    middle: int
    repository: int | None = None
    file_separator: int | None = None

    def prompt(
        self, encode: Callable[[str], list[int]], prefix: str, suffix: str, files: Sequence[tuple[str, str]] = ()
    ) -> list[int]:
        """Returns the prompt for the text between `prefix` and `suffix`, without tokens that begin every prompt.

        `encode` encodes plain text. `files` are names and texts of other files of the project, which come first if the
        model has tokens for them.
        """
        before = [self.prefix, *encode(prefix)]
        return [*self._files(encode, files), *before, self.suffix, *encode(suffix), self.middle]

    def _files(self, encode: Callable[[str], list[int]], files: Sequence[tuple[str, str]]) -> list[int]:
        """Returns the tokens of other files. After the last of them, the file begins that has the gap."""
        if not files or self.file_separator is None:
            return []
        token_ids = [] if self.repository is None else [self.repository, *encode("project\n")]
        for name, text in files:
            token_ids += [self.file_separator, *encode(f"{name}\n{text}\n")]
        return [*token_ids, self.file_separator]


def find_infill_tokens(ids_by_text: Mapping[str, int], named_id: Callable[[str], int | None]) -> InfillTokens | None:
    """Returns the tokens that the file names, or else those of a known spelling; None for a model that has none.

    `named_id` returns the token id under a key of `tokenizer.ggml.` in the file, or None.
    """
    named = [named_id("fim_pre_token_id"), named_id("fim_suf_token_id"), named_id("fim_mid_token_id")]
    spelled = ([ids_by_text.get(text) for text in spelling] for spelling in _SPELLINGS)
    for prefix, suffix, middle in (named, *spelled):
        if prefix is not None and suffix is not None and middle is not None:
            return InfillTokens(
                prefix=prefix,
                suffix=suffix,
                middle=middle,
                repository=_first(named_id("fim_rep_token_id"), _REPOSITORY_SPELLINGS, ids_by_text),
                file_separator=_first(named_id("fim_sep_token_id"), _SEPARATOR_SPELLINGS, ids_by_text),
            )
    return None


def _first(named: int | None, spellings: tuple[str, ...], ids_by_text: Mapping[str, int]) -> int | None:
    found = (ids_by_text[text] for text in spellings if text in ids_by_text)
    return named if named is not None else next(found, None)
