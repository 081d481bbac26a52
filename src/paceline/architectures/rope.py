"""Rotary position embedding: computes a model's frequencies, with every kind of context scaling applied.

Decoders get only the frequencies and one magnitude, so they know nothing about scaling.
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
    """How frequencies are stretched for contexts longer than those of the original training."""

    NONE = "none"
    LINEAR = "linear"
    YARN = "yarn"


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """A model's scaling. `factor` stretches the context; `original_context` is the context of the original training, in
    tokens.

    `frequency_factors` [head_dim / 2] divide the frequencies one by one (Llama 3, whose factors GGUF files carry as a
    tensor). The last three fields are YaRN's (Peng et al. 2023). A frequency that makes at least `beta_fast` rotations
    within the original context is kept, and one that makes at most `beta_slow` is fully interpolated. The magnitude is
    divided by 1 + 0.1 * `log_multiplier` * ln(`factor`).
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
    """Returns the frequencies base^(-2i / head_dim) after `scaling`, and the magnitude of sine and cosine."""
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
    """Returns how much YaRN keeps of each frequency, [head_dim / 2]: 1 of fast ones, 0 of slow ones, a ramp between."""
    first = max(0.0, math.floor(_dimension_of(scaling.beta_fast, head_dim, base, scaling.original_context)))
    last = min(head_dim - 1.0, math.ceil(_dimension_of(scaling.beta_slow, head_dim, base, scaling.original_context)))
    ramp = (np.arange(head_dim // 2, dtype=np.float64) - first) / max(0.001, last - first)
    return 1.0 - np.clip(ramp, 0.0, 1.0)


def _dimension_of(num_rotations: float, head_dim: int, base: float, context: int) -> float:
    """Returns the (fractional) index of the frequency that turns `num_rotations` times within `context` positions."""
    return head_dim * math.log(context / (num_rotations * 2 * math.pi)) / (2 * math.log(base))


def _yarn_magnitude(scaling: RopeScaling) -> float:
    logarithm = math.log(max(1.0, scaling.factor))
    return (1.0 + 0.1 * logarithm) / (1.0 + 0.1 * scaling.log_multiplier * logarithm)
