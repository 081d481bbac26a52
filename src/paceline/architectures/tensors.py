"""The canonical names and shapes of a model's tensors, and the check that a file has exactly these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.architectures.families import ARCHITECTURES
from paceline.checkpoint import GgufFile, check_weight_types
from paceline.core.errors import CheckpointError, UnsupportedModelError
from paceline.core.model_config import ModelConfig

EMBEDDING_NAME = "token_embd.weight"
OUTPUT_NAME = "output.weight"
OUTPUT_NORM_NAME = "output_norm.weight"
ROPE_FACTORS_NAME = "rope_freqs.weight"


@dataclass(frozen=True, slots=True)
class ExpectedTensor:
    """A tensor that a model must have or may have; matrices are (outputs, inputs)."""

    name: str
    shape: tuple[int, ...]
    is_required: bool = True


def layer_prefix(layer: int) -> str:
    """Returns what the names of a layer's tensors begin with."""
    return f"blk.{layer}."


def layer_tensors(config: ModelConfig, layer: int) -> Iterator[ExpectedTensor]:
    """Yields the tensors of one layer."""
    prefix = layer_prefix(layer)
    hidden, ffn, head = (config.hidden_size,), (config.ffn_size,), (config.head_dim,)
    query, kv = (config.num_heads * config.head_dim,), (config.num_kv_heads * config.head_dim,)
    yield ExpectedTensor(f"{prefix}attn_norm.weight", hidden)
    for name, width in (("attn_q", query), ("attn_k", kv), ("attn_v", kv)):
        yield ExpectedTensor(f"{prefix}{name}.weight", width + hidden)
        has_bias = ARCHITECTURES[config.architecture].has_attention_biases
        yield ExpectedTensor(f"{prefix}{name}.bias", width, is_required=has_bias)
    yield ExpectedTensor(f"{prefix}attn_output.weight", hidden + query)
    yield ExpectedTensor(f"{prefix}ffn_norm.weight", hidden)
    yield ExpectedTensor(f"{prefix}ffn_gate.weight", ffn + hidden)
    yield ExpectedTensor(f"{prefix}ffn_up.weight", ffn + hidden)
    yield ExpectedTensor(f"{prefix}ffn_down.weight", hidden + ffn)
    if config.has_query_key_norm:
        yield ExpectedTensor(f"{prefix}attn_q_norm.weight", head)
        yield ExpectedTensor(f"{prefix}attn_k_norm.weight", head)
    if config.has_post_norms:
        yield ExpectedTensor(f"{prefix}post_attention_norm.weight", hidden)
        yield ExpectedTensor(f"{prefix}post_ffw_norm.weight", hidden)


def model_tensors(config: ModelConfig) -> Iterator[ExpectedTensor]:
    """Yields all tensors of a model: the embedding, the layers one by one, and the output."""
    yield ExpectedTensor(EMBEDDING_NAME, (config.vocab_size, config.hidden_size))
    yield ExpectedTensor(ROPE_FACTORS_NAME, (config.head_dim // 2,), is_required=False)
    for layer in range(config.num_layers):
        yield from layer_tensors(config, layer)
    yield ExpectedTensor(OUTPUT_NORM_NAME, (config.hidden_size,))
    yield ExpectedTensor(OUTPUT_NAME, (config.vocab_size, config.hidden_size), is_required=False)


def check_tensors(gguf: GgufFile, config: ModelConfig) -> None:
    """Raises CheckpointError for a missing tensor or a wrong shape. Raises UnsupportedModelError for a tensor that no
    decoder would use, and for weights of a type that is not implemented. Each message names the tensor."""
    check_weight_types(gguf)
    path = gguf.paths[0]
    known = {description.name: description for description in model_tensors(config)}
    for name, tensor in gguf.tensors.items():
        if name not in known:
            raise UnsupportedModelError(
                f"{path}: tensor {name!r} is not part of a {config.architecture} model as implemented; "
                "use another model"
            )
        if tensor.shape != known[name].shape:
            raise CheckpointError(
                f"{path}: tensor {name!r} has shape {tensor.shape} instead of {known[name].shape}; the file is corrupt"
            )
    missing = [name for name, tensor in known.items() if tensor.is_required and name not in gguf.tensors]
    if missing:
        raise CheckpointError(f"{path}: tensor {missing[0]!r} is missing; the file is incomplete, get it again")
