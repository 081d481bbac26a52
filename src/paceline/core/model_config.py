"""`ModelConfig`: the sizes and options of a model. All architectures share one forward pass, which these select."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class RopeStyle(enum.StrEnum):
    """Which elements a rotation pairs: neighbours (2i, 2i+1), or halves (i, i + n/2)."""

    NORMAL = "normal"
    NEOX = "neox"


class KvCacheType(enum.StrEnum):
    """How K and V are stored: as float16, or as int8 with a float scale per value vector and per 16 key elements."""

    F16 = "f16"
    Q8 = "q8"


class ActivationRounding(enum.StrEnum):
    """How activations are rounded before quantized weights multiply them (native/quant/layouts.hpp has the rule)."""

    EIGHT_BITS = "8-bits"  # up to 15 in blocks with outliers
    FIFTEEN_BITS = "15-bits"


class Activation(enum.StrEnum):
    """The gate's nonlinearity in the feed-forward layer."""

    SILU = "silu"
    GELU = "gelu"  # the tanh approximation


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary position embedding. `inverse_frequencies` has head_dim / 2 entries with all scaling already applied.

    `magnitude` multiplies sine and cosine (YaRN's attention factor; 1 otherwise).
    """

    style: RopeStyle
    inverse_frequencies: tuple[float, ...]
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """Options that may differ from layer to layer. A layer with `sliding_window` n attends to the last n positions,
    itself included; None attends to the whole context."""

    rope: RopeConfig
    sliding_window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes and options of a llama-family decoder. A bias exists where its tensor does."""

    architecture: str
    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    max_context: int
    norm_epsilon: float
    attention_scale: float
    activation: Activation
    layers: tuple[LayerConfig, ...]
    embedding_scale: float = 1.0
    has_query_key_norm: bool = False
    has_post_norms: bool = False
    has_tied_output: bool = False
