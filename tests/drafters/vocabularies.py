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
    """Returns a tokenizer of bytes, letters and a few words. Its texts begin with <s>; </s> is end-of-sequence."""
    words = ["▁the", "▁ri", "ders", "▁", *"abcdefghijklmnopqrstuvwxyz"]
    entries = {
        "model": "llama",
        "tokens": ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words],
        "token_type": [2, 3, 3, *[6] * 256, *[1] * len(words)],
        "scores": [0.0] * 259 + [-float(i) for i in range(len(words))],
    }
    return Tokenizer.from_metadata({f"tokenizer.ggml.{key}": value for key, value in entries.items()}, None)


def crossing() -> Tokenizer:
    """Returns a tokenizer of all bytes and of pieces of words that `TARGET` lacks.

    `TARGET` has tokens that cross the borders between neighbouring pieces.
    """
    words = "the riders at the front of the line do the work and the others follow in the wake of the wheel"
    text = words.replace(" ", "Ġ")
    pieces = {text[i : i + size] for i in range(len(text) - 3) for size in (2, 3)} - {*TARGET.tokens}
    tokens = (*TARGET.tokens[:256], *sorted(pieces), *TARGET.tokens[-3:])
    return tokenizer_of(TinyVocabulary(tokens, (*[1] * (256 + len(pieces)), 3, 3, 3), ()))
