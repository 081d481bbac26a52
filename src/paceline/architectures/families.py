"""The architectures and how each differs from the shared llama-family decoder.

Sizes come from a file's metadata. This module holds what a file does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from paceline.core.model_config import Activation, RopeStyle


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Differences from the shared decoder.

    With `global_layer_period` n, every n-th layer sees the whole context and all others have a sliding window. With
    None, every layer sees the whole context. `local_rope_base` is the rope base of layers with a sliding window.
    """

    rope_style: RopeStyle = RopeStyle.NEOX
    activation: Activation = Activation.SILU
    has_attention_biases: bool = False
    has_query_key_norm: bool = False
    has_post_norms: bool = False
    has_scaled_embedding: bool = False
    has_attention_temperature: bool = False
    global_layer_period: int | None = None
    local_rope_base: float = 10000.0


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "llama": Architecture(rope_style=RopeStyle.NORMAL),
        "mistral3": Architecture(rope_style=RopeStyle.NORMAL, has_attention_temperature=True),
        "qwen2": Architecture(has_attention_biases=True),
        "qwen3": Architecture(has_query_key_norm=True),
        "gemma3": Architecture(
            activation=Activation.GELU,
            has_query_key_norm=True,
            has_post_norms=True,
            has_scaled_embedding=True,
            global_layer_period=6,
        ),
    }
)
