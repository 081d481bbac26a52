"""Plain data shared by every package: requests, sequences, batches, drafts, verdicts, outputs and the error tree.

The classes hold data and what can be derived from it. This package imports nothing else of Paceline.
"""

from paceline.core.batch import Batch, Float32Array, Int32Array
from paceline.core.draft import Calibration, Draft, Plan, Verdict
from paceline.core.engine_stats import DrafterStats, EngineStats
from paceline.core.model_config import (
    Activation,
    ActivationRounding,
    KvCacheType,
    LayerConfig,
    ModelConfig,
    RopeConfig,
    RopeStyle,
)
from paceline.core.output import FinishReason, Output, SpeculationStats, TokenLogprob
from paceline.core.request import Constraint, Preface, Request, SamplingParams, SpeculationMode, SpeculationParams
from paceline.core.sequence import Sequence, SequenceStatus

__all__ = [
    "Activation",
    "ActivationRounding",
    "Batch",
    "Calibration",
    "Constraint",
    "Draft",
    "DrafterStats",
    "EngineStats",
    "FinishReason",
    "Float32Array",
    "Int32Array",
    "KvCacheType",
    "LayerConfig",
    "ModelConfig",
    "Output",
    "Plan",
    "Preface",
    "Request",
    "RopeConfig",
    "RopeStyle",
    "SamplingParams",
    "Sequence",
    "SequenceStatus",
    "SpeculationMode",
    "SpeculationParams",
    "SpeculationStats",
    "TokenLogprob",
    "Verdict",
]
