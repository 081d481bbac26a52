"""Writes GGUF files with a vocabulary and almost no model, so that llama.cpp opens any tokenizer that a test makes up.

The vocabularies are those of a real byte-level model, with another pre-tokenizer or turned into a SentencePiece one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

from paceline.tokenizer.byte_alphabet import bytes_by_character

_WIDTH = 32
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6


def write_vocabulary_gguf(path: Path, metadata: Mapping[str, object]) -> Path:
    """Writes a llama model of one layer and width 32, with zero weights and this tokenizer; returns `path`."""
    writer = gguf.GGUFWriter(path, "llama")
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    for key, value in metadata.items():
        _add(writer, key, value)
    writer.add_vocab_size(len(tokens))
    writer.add_context_length(64)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_WIDTH)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tensor("token_embd.weight", np.zeros((len(tokens), _WIDTH), np.float16))
    writer.add_tensor("output_norm.weight", np.zeros(_WIDTH, np.float32))
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros(_WIDTH, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((_WIDTH, _WIDTH), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tokenizer_metadata(metadata: Mapping[str, object], **changes: object) -> dict[str, object]:
    """Returns the `tokenizer.*` entries of a file's metadata, with some `tokenizer.ggml` entries changed."""
    kept = {key: value for key, value in metadata.items() if key.startswith("tokenizer.")}
    return kept | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}


def sentence_piece_metadata(byte_level: Mapping[str, object], **changes: object) -> dict[str, object]:
    """Returns the metadata of a SentencePiece vocabulary with the words of a byte-level one.

    More frequent words have a better score. The ids are <unk>, <s>, </s>, 256 bytes, two user-defined tokens, and then
    words. A space is put before the text, unless `changes` say otherwise.
    """
    head = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "<custom>", "\n\n"]
    words = _words(byte_level)
    tokens = [*head, *(word for word in words if word not in head)]
    num_words = len(tokens) - len(head)
    token_types = [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256, *[_USER_DEFINED] * 2, *[_NORMAL] * num_words]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.array([0.0] * len(head) + [-1.0 - rank for rank in range(num_words)], np.float32),
        "tokenizer.ggml.token_type": np.array(token_types, np.int32),
        **{f"tokenizer.ggml.{name}": value for name, value in changes.items()},
    }


def _words(byte_level: Mapping[str, object]) -> list[str]:
    """Returns the byte-level tokens that are whole characters, with "▁" for each space; single characters come last."""
    tokens = byte_level["tokenizer.ggml.tokens"]
    token_types = byte_level["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list)
    assert isinstance(token_types, np.ndarray)
    alphabet = bytes_by_character()
    spelled = (
        bytes(alphabet[character] for character in token).decode("utf-8", "replace").replace(" ", "▁")
        for token, token_type in zip(tokens, token_types.tolist(), strict=True)
        if token_type == _NORMAL
    )
    words = list(dict.fromkeys(word for word in spelled if "\ufffd" not in word and "\0" not in word))
    characters = sorted({character for word in words for character in word})
    return [*(word for word in words if len(word) > 1), *characters]


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value.tolist() if isinstance(value, np.ndarray) else value)
