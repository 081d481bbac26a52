"""The pre-tokenizers that GGUF files name: each splits a text into words, and byte-pair merges stay inside a word.

Patterns are applied one after another, each to the pieces that the one before left. Each match becomes a piece, and so
does each stretch of text between matches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from paceline.core.errors import UnsupportedModelError

_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_WORDS_AND_LINES = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_NOT_LOWER = r"(?:(?=\p{L})[^a-z])"  # a letter that is not one of a to z
_NOT_UPPER = r"(?:(?=\p{L})[^A-Z])"
_TEKKEN_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_NOT_LOWER}*{_NOT_UPPER}+|[^\r\n\p{{L}}\p{{N}}]?{_NOT_LOWER}+{_NOT_UPPER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Patterns in Oniguruma's syntax.

    With `ignores_merges`, a word that is itself a token becomes that token, whatever the merges would give. With
    `adds_bos`, prompts begin with the beginning-of-sequence token unless the file says otherwise.
    """

    patterns: tuple[str, ...]
    ignores_merges: bool = False
    adds_bos: bool = False


_GPT2 = PreTokenizer((_GPT2_WORDS,))
_SMOLLM = PreTokenizer((r"\p{N}", _GPT2_WORDS))
_QWEN2 = PreTokenizer((_CONTRACTIONS + _LETTERS + r"|\p{N}" + _WORDS_AND_LINES,))
_THREE_DIGITS = PreTokenizer((_CONTRACTIONS + _LETTERS + r"|\p{N}{1,3}" + _WORDS_AND_LINES,))
_LLAMA_BPE = replace(_THREE_DIGITS, ignores_merges=True, adds_bos=True)
_TEKKEN = PreTokenizer((_TEKKEN_WORDS,), ignores_merges=True, adds_bos=True)
_DEFAULT = PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2_WORDS, r"\p{N}+", r"[0-9][0-9][0-9]"))

# The names are those that llama.cpp knows; all names in one row split a text in the same way.
_NAMES = (
    (_DEFAULT, ("default",)),
    (_GPT2, ("gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum")),
    (_GPT2, ("modern-bert", "exaone4", "mpt", "olmo", "jais", "trillion", "granite-docling")),
    (_SMOLLM, ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2")),
    (_QWEN2, ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open")),
    (_QWEN2, ("grok-2",)),
    (_LLAMA_BPE, ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2")),
    (_LLAMA_BPE, ("jina-v5-nano",)),
    (_THREE_DIGITS, ("dbrx", "smaug-bpe", "chatglm-bpe", "glm4")),
    (_TEKKEN, ("tekken",)),
)
_PRE_TOKENIZERS = MappingProxyType({name: known for known, names in _NAMES for name in names})


def find_pre_tokenizer(name: str) -> PreTokenizer:
    """Returns the pre-tokenizer of that name; raises UnsupportedModelError for an unknown one."""
    if name not in _PRE_TOKENIZERS:
        raise UnsupportedModelError(
            f"pre-tokenizer {name!r} is not supported; use a model with one of {', '.join(_PRE_TOKENIZERS)}"
        )
    return _PRE_TOKENIZERS[name]
