"""Writes a small GGUF file with every kind of metadata and a few tensors, with the `gguf` package."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

TOKENS = ["<s>", "", "naïve", "Ġthe", "日本", "\n", "🚴"]
SCORES = [0.0, -1.5, 2.25, 1e-9, -0.0, 3.5, 7.0]
TENSORS = {
    "token_embd.weight": np.arange(7 * 32, dtype=np.float32).reshape(7, 32),
    "blk.0.attn_q.weight": np.linspace(-1, 1, 4 * 64, dtype=np.float32).reshape(4, 64),
    "blk.0.experts.weight": np.arange(2 * 3 * 5, dtype=np.float16).reshape(2, 3, 5),
    "output_norm.weight": np.ones(64, dtype=np.float32),
}


def write_small_gguf(path: Path, *, alignment: int | None = None) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    add_every_kind_of_metadata(writer)
    for name, values in TENSORS.items():
        if name == "blk.0.attn_q.weight":
            packed = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_unknown_weights(path: Path) -> Path:
    """Writes a file with one tensor of a type that Paceline knows only by name."""
    writer = gguf.GGUFWriter(path, "llama")
    data = np.zeros((4, 136), np.uint8)
    writer.add_tensor("blk.0.attn_q.weight", data, raw_dtype=gguf.GGMLQuantizationType.IQ4_XS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_every_kind_of_metadata(writer: gguf.GGUFWriter) -> None:
    writer.add_uint8("small.uint8", 200)
    writer.add_int8("small.int8", -100)
    writer.add_uint16("small.uint16", 60000)
    writer.add_int16("small.int16", -30000)
    writer.add_uint32("small.uint32", 4_000_000_000)
    writer.add_int32("small.int32", -2_000_000_000)
    writer.add_uint64("small.uint64", 2**63 + 1)
    writer.add_int64("small.int64", -(2**62))
    writer.add_float32("small.float32", 0.5)
    writer.add_float64("small.float64", 0.1)
    writer.add_bool("small.bool", True)
    writer.add_string("small.string", "Grüße, 世界")
    writer.add_array("small.tokens", TOKENS)
    writer.add_array("small.scores", SCORES)
    writer.add_array("small.types", [1, -2, 3])
    writer.add_array("small.flags", [True, False, True])
    writer.add_array("small.merges", ["a b", "ab c"])
