"""`read_model_config`: turns a GGUF file's metadata and tensors into the options of the shared decoder.

The metadata keys are those of the GGUF specification. Absent keys get the defaults that files rely on in practice.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from paceline.architectures.families import ARCHITECTURES, Architecture
from paceline.architectures.metadata import Metadata
from paceline.architectures.rope import RopeScaling, RopeScalingKind, make_rope_config
from paceline.architectures.tensors import EMBEDDING_NAME, OUTPUT_NAME, ROPE_FACTORS_NAME, check_tensors
from paceline.checkpoint import GgufFile, dequantize
from paceline.core.errors import CheckpointError, UnsupportedModelError
from paceline.core.model_config import LayerConfig, ModelConfig

_REFUSED_KEYS = (
    *("expert_count", "final_logit_softcapping", "attn_logit_softcapping", "logit_scale", "residual_scale"),
    *("embedding_scale", "attention.clamp_kqv", "attention.max_alibi_bias", "attention.temperature_length"),
)
_GEMMA3_27B_LAYERS = 62


def read_model_config(gguf: GgufFile) -> ModelConfig:
    """Returns the configuration of the model in `gguf`, after checking the file's tensors against it.

    Raises UnsupportedModelError (architecture, kind of rope scaling, an option that changes the result) and
    CheckpointError (missing or malformed key; missing or misshapen tensor). Each message names what it is about.
    """
    metadata = Metadata(gguf)
    architecture = ARCHITECTURES.get(metadata.architecture)
    if architecture is None:
        raise UnsupportedModelError(
            f"{metadata.path}: architecture {metadata.architecture!r} is not implemented; "
            f"use a model of {', '.join(ARCHITECTURES)}"
        )
    _refuse_unknown_options(metadata, architecture)
    config = _read_sizes(gguf, metadata, architecture)
    check_tensors(gguf, config)
    return replace(config, layers=_read_layers(gguf, metadata, architecture, config))


def _refuse_unknown_options(metadata: Metadata, architecture: Architecture) -> None:
    for suffix in _REFUSED_KEYS:
        metadata.refuse(suffix)
    metadata.refuse("attention.causal", neutral=(True,))
    metadata.refuse("rope.scaling.yarn_ext_factor", neutral=(-1.0, 1.0))
    if architecture.global_layer_period is None:
        metadata.refuse("attention.sliding_window")
    if not architecture.has_attention_temperature:
        metadata.refuse("attention.temperature_scale")


def _read_sizes(gguf: GgufFile, metadata: Metadata, architecture: Architecture) -> ModelConfig:
    hidden_size, num_heads = metadata.size("embedding_length"), metadata.size("attention.head_count")
    num_kv_heads = metadata.size("attention.head_count_kv", default=num_heads)
    if num_heads % num_kv_heads:
        raise CheckpointError(
            f"{metadata.path}: {num_heads} attention heads cannot share {num_kv_heads} key-value heads evenly; "
            "the file is corrupt"
        )
    num_layers, head_dim = _read_num_layers(gguf, metadata), _read_head_dim(metadata, hidden_size // num_heads)
    default_scale = 1.0 / math.sqrt(head_dim)
    if metadata.architecture == "gemma3" and num_layers == _GEMMA3_27B_LAYERS:
        default_scale = 1.0 / math.sqrt(hidden_size / num_heads)
    return ModelConfig(
        architecture=metadata.architecture,
        name=metadata.model_name,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        ffn_size=metadata.size("feed_forward_length"),
        vocab_size=_read_vocab_size(gguf, metadata),
        max_context=_read_max_context(metadata),
        norm_epsilon=metadata.positive_number("attention.layer_norm_rms_epsilon"),
        attention_scale=metadata.positive_number("attention.scale", default_scale),
        activation=architecture.activation,
        layers=(),
        embedding_scale=math.sqrt(hidden_size) if architecture.has_scaled_embedding else 1.0,
        has_query_key_norm=architecture.has_query_key_norm,
        has_post_norms=architecture.has_post_norms,
        has_tied_output=OUTPUT_NAME not in gguf.tensors,
    )


def _read_num_layers(gguf: GgufFile, metadata: Metadata) -> int:
    """Returns the number of layers; raises CheckpointError if there are fewer tensors than layers. So the file's size
    limits everything that grows with the layers."""
    num_layers = metadata.size("block_count")
    if num_layers > len(gguf.tensors):
        raise CheckpointError(
            f"{metadata.path}: metadata key {metadata.key('block_count')!r} is {num_layers}, but there are only "
            f"{len(gguf.tensors)} tensors; the file is corrupt"
        )
    return num_layers


def _read_head_dim(metadata: Metadata, default: int) -> int:
    head_dim = metadata.size("attention.key_length", default)
    for suffix in ("attention.value_length", "rope.dimension_count"):
        if metadata.size(suffix, head_dim) != head_dim:
            raise UnsupportedModelError(
                f"{metadata.path}: metadata key {metadata.key(suffix)!r} is {metadata.size(suffix)} with heads of "
                f"{head_dim}, which is not implemented; use another model"
            )
    if head_dim % 2:
        raise CheckpointError(f"{metadata.path}: heads of {head_dim} cannot be rotated; the file is corrupt")
    return head_dim


def _read_vocab_size(gguf: GgufFile, metadata: Metadata) -> int:
    embedding = gguf.tensors.get(EMBEDDING_NAME)
    if embedding is None:
        raise CheckpointError(f"{metadata.path}: tensor {EMBEDDING_NAME!r} is missing; the file is incomplete")
    return embedding.shape[0]


def _read_max_context(metadata: Metadata) -> int:
    """Returns the trained context; if attention has a temperature, only the part where that temperature is 1."""
    context_length = metadata.size("context_length")
    if metadata.optional_number("attention.temperature_scale"):
        return min(context_length, metadata.size("rope.scaling.original_context_length", context_length))
    return context_length


def _read_layers(
    gguf: GgufFile, metadata: Metadata, architecture: Architecture, config: ModelConfig
) -> tuple[LayerConfig, ...]:
    base = metadata.positive_number("rope.freq_base", 10000.0)
    scaling = _read_rope_scaling(gguf, metadata)
    global_layer = LayerConfig(rope=make_rope_config(architecture.rope_style, config.head_dim, base, scaling))
    if architecture.global_layer_period is None:
        return (global_layer,) * config.num_layers
    local_base = metadata.positive_number("rope.freq_base_swa", architecture.local_rope_base)
    local_layer = LayerConfig(
        rope=make_rope_config(architecture.rope_style, config.head_dim, local_base, RopeScaling()),
        sliding_window=metadata.size("attention.sliding_window"),
    )
    period = metadata.size("attention.sliding_window_pattern", architecture.global_layer_period)
    return tuple(global_layer if (i + 1) % period == 0 else local_layer for i in range(config.num_layers))


def _read_rope_scaling(gguf: GgufFile, metadata: Metadata) -> RopeScaling:
    kind = _read_scaling_kind(gguf, metadata)
    return RopeScaling(
        kind=kind,
        factor=_read_scaling_factor(metadata),
        original_context=metadata.size("rope.scaling.original_context_length", metadata.size("context_length")),
        magnitude=metadata.positive_number("rope.scaling.attn_factor", 1.0),
        frequency_factors=_read_frequency_factors(gguf, metadata),
        beta_fast=metadata.positive_number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=metadata.positive_number("rope.scaling.yarn_beta_slow", 1.0),
        log_multiplier=metadata.optional_number("rope.scaling.yarn_log_multiplier") or 0.0,
    )


def _read_scaling_factor(metadata: Metadata) -> float:
    """Returns how much the context is stretched: 1 if the file says nothing or 0. Older files call it scale_linear."""
    suffix = (
        "rope.scaling.factor" if metadata.optional_number("rope.scaling.factor") is not None else "rope.scale_linear"
    )
    return metadata.positive_number(suffix, 1.0) if metadata.optional_number(suffix) != 0 else 1.0


def _read_scaling_kind(gguf: GgufFile, metadata: Metadata) -> RopeScalingKind:
    """Returns the kind of rope scaling. A factor without a kind means linear. Llama 3's kind counts as none, because
    its factors are in a tensor."""
    kind = metadata.optional_text("rope.scaling.type")
    if kind is None:
        return RopeScalingKind.LINEAR
    if kind == "llama3" and ROPE_FACTORS_NAME in gguf.tensors:
        return RopeScalingKind.NONE
    if kind not in list(RopeScalingKind):
        raise UnsupportedModelError(
            f"{metadata.path}: rope scaling {kind!r} is not implemented; use a model with one of "
            f"{', '.join(RopeScalingKind)}, or with Llama 3 factors in the tensor {ROPE_FACTORS_NAME!r}"
        )
    return RopeScalingKind(kind)


def _read_frequency_factors(gguf: GgufFile, metadata: Metadata) -> tuple[float, ...] | None:
    tensor = gguf.tensors.get(ROPE_FACTORS_NAME)
    if tensor is None:
        return None
    factors = dequantize(tensor).reshape(-1)
    if not np.all(np.isfinite(factors) & (factors > 0)):
        raise CheckpointError(f"{metadata.path}: tensor {ROPE_FACTORS_NAME!r} has factors that are not above zero")
    return tuple(factors.tolist())
