"""Writes tiny random GGUF models that are valid in every respect, so tests need no download for a model of any kind.

    path = write_tiny_gguf(tmp_path / "tiny.gguf", "qwen2", "Q4_K")                     # 2 layers, 256 wide, 384 tokens
    path = write_tiny_gguf(tmp_path / "odd.gguf", "llama", "Q5_0", hidden_size=96, num_heads=3, num_kv_heads=1,
                           head_dim=32, ffn_size=160, vocab_size=333)
    path = write_tiny_gguf(tmp_path / "yarn.gguf", "llama", "F16", rope_scaling=RopeScaling("yarn", factor=4.0))
    pair = write_tiny_pair(tmp_path, "qwen2", "Q4_K")                                   # pair.target, pair.draft

The keywords are the fields of `TinyShape`. The same arguments and seed give the same bytes. The values of a tensor
depend only on the seed, its name and its shape. So a model with fewer layers is the beginning of a larger one, and the
draft model of a pair often agrees with its target. Logits spread like those of a real model: the likeliest token has a
probability of about one half. Greedy text keeps changing and is mostly printable. End-of-sequence and other control
tokens are almost never the likeliest, so use `stop_token_ids`, `stop` or `max_tokens` to end a generation.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from tests.support.random_weights import Float32Array, random_matrix
from tests.support.tiny_vocabulary import (
    CHAT_TEMPLATE,
    CONTROL_TOKENS,
    TinyVocabulary,
    VocabularyChange,
    add_vocabulary,
    build_vocabulary,
)

ARCHITECTURES = ("llama", "mistral3", "qwen2", "qwen3", "gemma3")

_QUERY_KEY_GAIN = 1.6
_LOGIT_DEVIATION = 4.0
_LATER_LAYER_GAIN = 0.6


@dataclass(frozen=True)
class RopeScaling:
    """Scaling of rotary frequencies. `kind` is `none`, `linear`, `yarn` or `llama3`; lengths are in tokens.

    `log_multiplier` is YaRN's log multiplier in mistral3.
    """

    kind: str
    factor: float = 4.0
    original_context_length: int = 128
    log_multiplier: float | None = None


@dataclass(frozen=True)
class TinyShape:
    """Sizes of a tiny model. K-quants need widths that are multiples of 256, the legacy types multiples of 32.

    Only gemma3 uses `sliding_window`; every second layer is global, so that two layers have both kinds. Only mistral3
    uses `attention_temperature_scale`. `output_type` is the type of the output matrix (None: `weight_type`). With
    `vocabulary_change` the rows of the tokens move to the new ids, so the model gives the same texts with other ids. If
    `num_padding_rows` is positive, that many first rows of embedding and output are repeated after the last token's
    row; if it is negative, that many last tokens have no rows. `metadata` are further numbers of the file.
    """

    num_layers: int = 2
    hidden_size: int = 256
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    ffn_size: int = 512
    vocab_size: int = 384
    context_length: int = 2048
    rope_base: float = 10000.0
    rope_scaling: RopeScaling = RopeScaling("none")
    tied: bool = False
    sliding_window: int = 32
    attention_temperature_scale: float | None = None
    output_type: str | None = None
    pre_tokenizer: str = "qwen2"
    chat_template: str | None = CHAT_TEMPLATE
    vocabulary_change: VocabularyChange | None = None
    num_padding_rows: int = 0
    metadata: Mapping[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class TinyPair:
    """The paths of a target and of a draft model."""

    target: Path
    draft: Path


@dataclass(frozen=True)
class _TensorSource:
    """Makes the named tensors of one model; every tensor has its own random generator."""

    weight_type: str
    seed: int

    def generator(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def vector(self, name: str, size: int, mean: float, deviation: float) -> Float32Array:
        return (mean + deviation * self.generator(name).standard_normal(size)).astype(np.float32)

    def matrix(
        self, name: str, num_columns: int, row_deviations: Float32Array, type_name: str
    ) -> npt.NDArray[np.generic]:
        return random_matrix(self.generator(name), type_name, num_columns, row_deviations)


def write_tiny_gguf(
    path: Path, architecture: str = "llama", weight_type: str = "Q4_K", *, seed: int = 0, **shape: object
) -> Path:
    """Writes a model with random weights and returns `path`; the keywords are the fields of `TinyShape`.

    `architecture` is one of `ARCHITECTURES`. `weight_type` is one of `random_weights.WEIGHT_TYPES`: every matrix has
    this type, while norms and biases are F32. Raises ValueError for sizes that the type cannot have.
    """
    sizes = TinyShape(**shape)  # type: ignore[arg-type]
    if architecture not in ARCHITECTURES:
        raise ValueError(f"no tiny model of architecture {architecture}")
    vocabulary = build_vocabulary(sizes.vocab_size)
    writer = gguf.GGUFWriter(path, architecture)
    _add_hyperparameters(writer, architecture, sizes)
    change = sizes.vocabulary_change
    changed = vocabulary if change is None else change.apply(vocabulary)
    add_vocabulary(writer, changed, sizes.pre_tokenizer, sizes.chat_template)
    for key, value in sizes.metadata.items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    for name, unordered in _tensors(architecture, sizes, vocabulary, _TensorSource(weight_type, seed)):
        has_token_rows = name in ("token_embd.weight", "output.weight")
        data = unordered[_row_order(sizes)] if has_token_rows else unordered
        raw_type = gguf.GGMLQuantizationType[_type_of(name, weight_type, sizes)] if data.dtype == np.uint8 else None
        writer.add_tensor(name, data, raw_dtype=raw_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_tiny_pair(
    directory: Path,
    architecture: str = "qwen2",
    weight_type: str = "Q4_K",
    *,
    seed: int = 0,
    num_draft_layers: int = 1,
    draft_vocabulary: VocabularyChange | None = None,
    **shape: object,
) -> TinyPair:
    """Writes `target.gguf` (3 layers by default), and `draft.gguf` with the target's first layers and output layer.

    `draft_vocabulary` gives the draft model another vocabulary. On the target's greedy text, one draft layer agrees
    with about 40 % of the tokens, and two with about 60 %.
    """
    target_shape = {"num_layers": 3, **shape}
    draft_shape = {**target_shape, "num_layers": num_draft_layers, "vocabulary_change": draft_vocabulary}
    target = write_tiny_gguf(directory / "target.gguf", architecture, weight_type, seed=seed, **target_shape)
    draft = write_tiny_gguf(directory / "draft.gguf", architecture, weight_type, seed=seed, **draft_shape)
    return TinyPair(target, draft)


def llama3_frequency_factors(scaling: RopeScaling, head_dim: int, base: float) -> Float32Array:
    """Returns Llama 3.1's divisors of the rotary frequencies, float32 [head_dim/2]; low factor 1, high factor 4."""
    frequencies = base ** -(np.arange(0, head_dim, 2) / head_dim)
    rotations = scaling.original_context_length * frequencies / (2 * np.pi)
    smooth = np.clip((rotations - 1.0) / (4.0 - 1.0), 0.0, 1.0)
    return (1.0 / ((1 - smooth) / scaling.factor + smooth)).astype(np.float32)


def _add_hyperparameters(writer: gguf.GGUFWriter, architecture: str, sizes: TinyShape) -> None:
    writer.add_name(f"tiny {architecture}")
    writer.add_block_count(sizes.num_layers)
    writer.add_context_length(sizes.context_length)
    writer.add_embedding_length(sizes.hidden_size)
    writer.add_feed_forward_length(sizes.ffn_size)
    writer.add_head_count(sizes.num_heads)
    writer.add_head_count_kv(sizes.num_kv_heads)
    writer.add_key_length(sizes.head_dim)
    writer.add_value_length(sizes.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(sizes.rope_base)
    writer.add_vocab_size(sizes.vocab_size)
    if architecture in ("llama", "mistral3"):
        writer.add_rope_dimension_count(sizes.head_dim)
    if architecture == "gemma3":
        writer.add_sliding_window(sizes.sliding_window)
        writer.add_sliding_window_pattern(2)
    if sizes.rope_scaling.kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(sizes.rope_scaling.kind))
        writer.add_rope_scaling_factor(sizes.rope_scaling.factor)
        writer.add_rope_scaling_orig_ctx_len(sizes.rope_scaling.original_context_length)
    if sizes.rope_scaling.log_multiplier is not None:
        writer.add_rope_scaling_yarn_log_mul(sizes.rope_scaling.log_multiplier)
    if sizes.attention_temperature_scale is not None:
        writer.add_attn_temperature_scale(sizes.attention_temperature_scale)


def _row_order(sizes: TinyShape) -> list[int]:
    """Returns for each row its row before the vocabulary was changed and padded."""
    change = sizes.vocabulary_change
    order = list(range(sizes.vocab_size)) if change is None else change.order(sizes.vocab_size)
    return [*order, *order[: max(0, sizes.num_padding_rows)]][: sizes.vocab_size + sizes.num_padding_rows]


def _type_of(name: str, weight_type: str, sizes: TinyShape) -> str:
    if sizes.output_type is not None and name == ("token_embd.weight" if sizes.tied else "output.weight"):
        return sizes.output_type
    return weight_type


def _token_gains(vocabulary: TinyVocabulary) -> Float32Array:
    """Returns factors of the output rows, with which control tokens almost never win, and other bytes than printable
    ASCII seldom win."""
    gains = np.ones(len(vocabulary.tokens), np.float32)
    for byte in range(256):
        if not (32 <= byte < 127 or byte == ord("\n")):
            gains[byte] = 0.5
    gains[-len(CONTROL_TOKENS) :] = 0.02
    return gains


def _tensors(
    architecture: str, sizes: TinyShape, vocabulary: TinyVocabulary, source: _TensorSource
) -> Iterator[tuple[str, npt.NDArray[np.generic]]]:
    yield from _embedding_tensors(architecture, sizes, vocabulary, source)
    if sizes.rope_scaling.kind == "llama3":
        yield "rope_freqs.weight", llama3_frequency_factors(sizes.rope_scaling, sizes.head_dim, sizes.rope_base)
    for layer in range(sizes.num_layers):
        yield from _layer_matrices(sizes, source, f"blk.{layer}.", _LATER_LAYER_GAIN**layer)
        yield from _layer_vectors(architecture, sizes, source, f"blk.{layer}.", _LATER_LAYER_GAIN**layer)


def _embedding_tensors(
    architecture: str, sizes: TinyShape, vocabulary: TinyVocabulary, source: _TensorSource
) -> Iterator[tuple[str, npt.NDArray[np.generic]]]:
    output_rows = _token_gains(vocabulary) * np.float32(_LOGIT_DEVIATION / np.sqrt(sizes.hidden_size))
    is_tied = sizes.tied or architecture == "gemma3"
    embedding_rows = output_rows if is_tied else np.ones_like(output_rows)
    embedding_type = _type_of("token_embd.weight", source.weight_type, replace(sizes, tied=is_tied))
    yield "token_embd.weight", source.matrix("token_embd.weight", sizes.hidden_size, embedding_rows, embedding_type)
    if not is_tied:
        output_type = _type_of("output.weight", source.weight_type, sizes)
        yield "output.weight", source.matrix("output.weight", sizes.hidden_size, output_rows, output_type)
    # Without random signs, a tied output layer would favour the token that was just read.
    signs = source.generator("output_norm signs").choice(np.array([-1, 1], np.float32), sizes.hidden_size)
    yield "output_norm.weight", source.vector("output_norm.weight", sizes.hidden_size, 1.0, 0.1) * signs


def _layer_matrices(
    sizes: TinyShape, source: _TensorSource, prefix: str, branch_gain: float
) -> Iterator[tuple[str, npt.NDArray[np.generic]]]:
    query_width, kv_width = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
    shapes = {
        "attn_q": (query_width, sizes.hidden_size, _QUERY_KEY_GAIN),
        "attn_k": (kv_width, sizes.hidden_size, _QUERY_KEY_GAIN),
        "attn_v": (kv_width, sizes.hidden_size, 1.0),
        "attn_output": (sizes.hidden_size, query_width, 2.0 * branch_gain),
        "ffn_gate": (sizes.ffn_size, sizes.hidden_size, 1.5),
        "ffn_up": (sizes.ffn_size, sizes.hidden_size, 1.0),
        "ffn_down": (sizes.hidden_size, sizes.ffn_size, 1.0 * branch_gain),
    }
    for name, (num_rows, num_columns, gain) in shapes.items():
        deviations = np.full(num_rows, gain / np.sqrt(num_columns), np.float32)
        full_name = f"{prefix}{name}.weight"
        yield full_name, source.matrix(full_name, num_columns, deviations, source.weight_type)


def _layer_vectors(
    architecture: str, sizes: TinyShape, source: _TensorSource, prefix: str, branch_gain: float
) -> Iterator[tuple[str, npt.NDArray[np.generic]]]:
    vectors = {"attn_norm.weight": (sizes.hidden_size, 1.0, 0.2), "ffn_norm.weight": (sizes.hidden_size, 1.0, 0.2)}
    if architecture == "qwen2":
        query_width, kv_width = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
        vectors |= {"attn_q.bias": (query_width, 0.0, 0.3), "attn_k.bias": (kv_width, 0.0, 0.3)}
        vectors |= {"attn_v.bias": (kv_width, 0.0, 0.3)}
    if architecture in ("qwen3", "gemma3"):
        vectors |= {"attn_q_norm.weight": (sizes.head_dim, _QUERY_KEY_GAIN, 0.2)}
        vectors |= {"attn_k_norm.weight": (sizes.head_dim, _QUERY_KEY_GAIN, 0.2)}
    if architecture == "gemma3":
        vectors |= {"post_attention_norm.weight": (sizes.hidden_size, 4.0 * branch_gain, 0.2)}
        vectors |= {"post_ffw_norm.weight": (sizes.hidden_size, 4.0 * branch_gain, 0.2)}
    for name, (size, mean, deviation) in vectors.items():
        yield prefix + name, source.vector(prefix + name, size, mean, deviation)
