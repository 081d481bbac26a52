"""How each pre-tokenizer that GGUF names splits text into the words that byte-pair merges stay inside.

Patterns apply one after another, each to the pieces of the one before; what a pattern does not match stays a piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from paceline.core.errors import UnsupportedModelError

_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_WORDS_AND_LINES = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"|[^\r\n\p{L}\p{N}]?\p{L}+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Patterns in Oniguruma's syntax. `ignores_merges`: a word that is a token is taken as it is, whatever merges give.

    `adds_bos`: prompts begin with the beginning-of-sequence token unless the file says otherwise.
    """

    patterns: tuple[str, ...]
    ignores_merges: bool = False
    adds_bos: bool = False


_GPT2 = PreTokenizer((_GPT2_WORDS,))
_LLAMA_BPE = PreTokenizer(
    (_CONTRACTIONS + _LETTERS + r"|\p{N}{1,3}" + _WORDS_AND_LINES,), ignores_merges=True, adds_bos=True
)
_PRE_TOKENIZERS = MappingProxyType(
    {
        "gpt-2": _GPT2,
        "smollm": PreTokenizer((r"\p{N}", _GPT2_WORDS)),
        "qwen2": PreTokenizer((_CONTRACTIONS + _LETTERS + r"|\p{N}" + _WORDS_AND_LINES,)),
        "llama-bpe": _LLAMA_BPE,
        "llama3": _LLAMA_BPE,
        "llama-v3": _LLAMA_BPE,
        "default": PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2_WORDS, r"\p{N}+", r"[0-9][0-9][0-9]")),
    }
)


def find_pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer of that name; raises UnsupportedModelError."""
    if name not in _PRE_TOKENIZERS:
        raise UnsupportedModelError(
            f"pre-tokenizer {name!r} is not supported; use a model with one of {', '.join(_PRE_TOKENIZERS)}"
        )
    return _PRE_TOKENIZERS[name]
