"""Compares the reference and the native model with llama.cpp, teacher-forced, over the whole vocabulary, on tiny models
of every architecture, kind of rope scaling and weight type.

Tolerances are about twice the largest measured value. With float weights the only differences are float32 noise and the
half-precision KV cache (and for BF16 that llama.cpp rounds activations to BF16). With quantized weights llama.cpp
rounds activations to 8 bits and the models here round them to 15; random weights amplify this difference.
"""

from __future__ import annotations

import dataclasses

import pytest

from paceline.architectures import read_model_config
from paceline.backends.native.model import NativeModel, ThreadPool
from paceline.backends.reference.model import ReferenceModel
from paceline.checkpoint import GgufFile
from paceline.core import ActivationRounding
from tests.support.independent_engine import IndependentEngine, compare
from tests.support.random_weights import WEIGHT_TYPES
from tests.support.tiny_gguf import ARCHITECTURES, RopeScaling, write_tiny_gguf

PROMPT = [(37 * i + 11) % 300 for i in range(40)]
VOCAB_SIZE = 384


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """How much log-probabilities may differ, in nat: on average for the likeliest token, on average for all tokens,
    and at most for the likeliest token. `agreement` is the least share of positions with equal likeliest tokens."""

    mean_top: float
    mean_all: float
    largest_top: float
    agreement: float


FLOAT = Tolerance(0.002, 0.004, 0.015, 0.98)
HALF = Tolerance(0.003, 0.006, 0.02, 0.98)
BRAIN_FLOAT = Tolerance(0.02, 0.04, 0.1, 0.96)
QUANTIZED = Tolerance(0.07, 0.14, 0.5, 0.92)
TOLERANCES = {"F32": FLOAT, "F16": HALF, "BF16": BRAIN_FLOAT}


def _assert_models_match_the_engine(path, tolerance, context_size=2048):
    with IndependentEngine(path, context_size=context_size) as engine:
        text = engine.generate(PROMPT, num_tokens=80, num_logprobs=VOCAB_SIZE)
    with GgufFile.open(path) as gguf:
        reference = ReferenceModel(gguf, activation_rounding=ActivationRounding.FIFTEEN_BITS)
        native = NativeModel(gguf, read_model_config(gguf), threads=ThreadPool(1))
        for model in (reference, native):
            comparison = compare(model, text)
            assert len(comparison.is_same_top) > 70
            assert comparison.mean_top_difference < tolerance.mean_top
            assert comparison.mean_differences.mean() < tolerance.mean_all
            assert comparison.top_differences.max() < tolerance.largest_top
            assert comparison.agreement >= tolerance.agreement


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architecture(tmp_path, architecture):
    path = write_tiny_gguf(tmp_path / "tiny.gguf", architecture, "F32", vocab_size=VOCAB_SIZE)
    _assert_models_match_the_engine(path, FLOAT)


@pytest.mark.parametrize("kind", ["linear", "yarn"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
def test_rope_scaling(tmp_path, architecture, kind):
    scaling = RopeScaling(kind, factor=4.0, original_context_length=64)
    path = write_tiny_gguf(tmp_path / "tiny.gguf", architecture, "F32", vocab_size=VOCAB_SIZE, rope_scaling=scaling)
    _assert_models_match_the_engine(path, FLOAT)


def test_llama3_rope_factors(tmp_path):
    scaling = RopeScaling("llama3", factor=8.0, original_context_length=64)
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama", "F32", vocab_size=VOCAB_SIZE, rope_scaling=scaling)
    _assert_models_match_the_engine(path, FLOAT)


def test_mistral3_yarn_with_multiplier_and_attention_temperature(tmp_path):
    scaling = RopeScaling("yarn", 16.0, original_context_length=256, log_multiplier=0.5)
    options = {"rope_scaling": scaling, "attention_temperature_scale": 0.1}
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "mistral3", "F32", vocab_size=VOCAB_SIZE, **options)
    _assert_models_match_the_engine(path, FLOAT, context_size=256)


@pytest.mark.parametrize("weight_type", WEIGHT_TYPES[1:])
def test_weight_type(tmp_path, weight_type):
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama", weight_type, vocab_size=VOCAB_SIZE)
    _assert_models_match_the_engine(path, TOLERANCES.get(weight_type, QUANTIZED))


@pytest.mark.parametrize("weight_type", ["Q4_0", "Q5_1", "Q8_0", "IQ4_NL"])
def test_widths_that_are_no_multiple_of_256(tmp_path, weight_type):
    shape = {"hidden_size": 288, "num_heads": 3, "num_kv_heads": 1, "head_dim": 96, "ffn_size": 416}
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "qwen2", weight_type, vocab_size=VOCAB_SIZE, **shape)
    _assert_models_match_the_engine(path, QUANTIZED)


def test_tied_output_of_its_own_type(tmp_path):
    path = write_tiny_gguf(
        tmp_path / "tiny.gguf", "qwen3", "Q4_K", vocab_size=VOCAB_SIZE, tied=True, output_type="Q6_K"
    )
    _assert_models_match_the_engine(path, QUANTIZED)
