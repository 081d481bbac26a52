"""Tokenizers without models, for tests of draft models whose vocabulary is not the target's."""

from __future__ import annotations

from paceline.tokenizer import Tokenizer
from tests.support.tiny_vocabulary import TinyVocabulary, build_vocabulary

TARGET = build_vocabulary(384)


def tokenizer_of(vocabulary: TinyVocabulary) -> Tokenizer:
    entries = {
        "model": "gpt2",
        "pre": "qwen2",
        "tokens": list(vocabulary.tokens),
        "token_type": list(vocabulary.token_types),
        "merges": list(vocabulary.merges),
        "bos_token_id": vocabulary.end_of_text_id,
        "eos_token_id": vocabulary.end_of_turn_id,
        "add_bos_token": False,
    }
    return Tokenizer.from_metadata({f"tokenizer.ggml.{key}": value for key, value in entries.items()}, None)


def sentence_piece() -> Tokenizer:
    """Tokens of bytes, letters and a few words; it wants <s> in front of a text and </s> ends one."""
    words = ["▁the", "▁ri", "ders", "▁", *"abcdefghijklmnopqrstuvwxyz"]
    entries = {
        "model": "llama",
        "tokens": ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words],
        "token_type": [2, 3, 3, *[6] * 256, *[1] * len(words)],
        "scores": [0.0] * 259 + [-float(i) for i in range(len(words))],
    }
    return Tokenizer.from_metadata({f"tokenizer.ggml.{key}": value for key, value in entries.items()}, None)


def crossing() -> Tokenizer:
    """Of all bytes and of pieces of words that `TARGET` lacks and whose neighbours it joins across their border."""
    words = "the riders at the front of the line do the work and the others follow in the wake of the wheel"
    text = words.replace(" ", "Ġ")
    pieces = {text[i : i + size] for i in range(len(text) - 3) for size in (2, 3)} - {*TARGET.tokens}
    tokens = (*TARGET.tokens[:256], *sorted(pieces), *TARGET.tokens[-3:])
    return tokenizer_of(TinyVocabulary(tokens, (*[1] * (256 + len(pieces)), 3, 3, 3), ()))
