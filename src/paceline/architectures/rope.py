"""Rotary position embedding: the frequencies of a model with every kind of context scaling already applied.

Only the frequencies and one magnitude are left for the decoders, which therefore know nothing of scaling.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.core.model_config import RopeConfig, RopeStyle

Float64Array = npt.NDArray[np.float64]


class RopeScalingKind(enum.StrEnum):
    """How frequencies are stretched for contexts longer than those of the first training."""

    NONE = "none"
    LINEAR = "linear"
    YARN = "yarn"


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """A model's scaling. `factor` stretches the context, `original_context` (tokens) is what it was trained on first.

    `frequency_factors` [head_dim / 2] divide the frequencies one by one (Llama 3, whose factors GGUF files carry as a
    tensor). The last three are YaRN's (Peng et al. 2023): rotations within the original context above which a frequency
    is kept and below which it is fully interpolated, and the exponent-like multiplier that some models divide its
    magnitude by.
    """

    kind: RopeScalingKind = RopeScalingKind.NONE
    factor: float = 1.0
    original_context: int = 0
    magnitude: float = 1.0
    frequency_factors: tuple[float, ...] | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    log_multiplier: float = 0.0


def make_rope_config(style: RopeStyle, head_dim: int, base: float, scaling: RopeScaling) -> RopeConfig:
    """Frequencies base^(-2i / head_dim) after `scaling`, and the magnitude of sine and cosine."""
    frequencies = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if scaling.frequency_factors is not None:
        frequencies = frequencies / np.asarray(scaling.frequency_factors, dtype=np.float64)
    magnitude = scaling.magnitude
    if scaling.kind is RopeScalingKind.LINEAR:
        frequencies = frequencies / scaling.factor
    elif scaling.kind is RopeScalingKind.YARN:
        kept = _kept_share(head_dim, base, scaling)
        frequencies = frequencies / scaling.factor * (1 - kept) + frequencies * kept
        magnitude *= _yarn_magnitude(scaling)
    return RopeConfig(style=style, inverse_frequencies=tuple(frequencies.tolist()), magnitude=magnitude)


def _kept_share(head_dim: int, base: float, scaling: RopeScaling) -> Float64Array:
    """How much of each frequency YaRN keeps, [head_dim / 2]: 1 for fast ones, 0 for slow ones, a ramp between."""
    first = max(0.0, math.floor(_dimension_of(scaling.beta_fast, head_dim, base, scaling.original_context)))
    last = min(head_dim - 1.0, math.ceil(_dimension_of(scaling.beta_slow, head_dim, base, scaling.original_context)))
    ramp = (np.arange(head_dim // 2, dtype=np.float64) - first) / max(0.001, last - first)
    return 1.0 - np.clip(ramp, 0.0, 1.0)


def _dimension_of(num_rotations: float, head_dim: int, base: float, context: int) -> float:
    """The (fractional) frequency index that turns `num_rotations` times within `context` positions."""
    return head_dim * math.log(context / (num_rotations * 2 * math.pi)) / (2 * math.log(base))


def _yarn_magnitude(scaling: RopeScaling) -> float:
    logarithm = math.log(max(1.0, scaling.factor))
    return (1.0 + 0.1 * logarithm) / (1.0 + 0.1 * scaling.log_multiplier * logarithm)
