"""Tests which `ModelConfig` each architecture's files give, and that impossible files are refused."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import pytest

from paceline.architectures import layer_tensors, read_model_config
from paceline.checkpoint import GgmlType, GgufFile
from paceline.core import Activation, RopeStyle
from paceline.core.errors import CheckpointError, UnsupportedModelError
from tests.support.tiny_gguf import ARCHITECTURES, RopeScaling, write_tiny_gguf


@pytest.fixture
def open_tiny(tmp_path):
    """Returns a function that writes and opens a tiny F32 model: `open_tiny(architecture, **shape)`."""
    return lambda architecture, **shape: GgufFile.open(
        write_tiny_gguf(tmp_path / "tiny.gguf", architecture, "F32", **shape)
    )


@pytest.fixture
def llama(open_tiny):
    """Returns a tiny llama model whose metadata and tensors a test may edit."""
    gguf = open_tiny("llama")
    gguf.metadata = dict(gguf.metadata)
    return gguf


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sizes_are_those_of_the_file(open_tiny, architecture):
    shape = {"num_layers": 3, "num_heads": 4, "num_kv_heads": 1, "head_dim": 32, "ffn_size": 160, "vocab_size": 300}
    config = read_model_config(open_tiny(architecture, **shape))
    assert config.architecture == architecture
    assert config.name == f"tiny {architecture}"
    assert {name: getattr(config, name) for name in shape} == shape
    assert (config.hidden_size, config.max_context, len(config.layers)) == (256, 2048, 3)
    assert config.attention_scale == pytest.approx(32**-0.5)
    assert config.norm_epsilon == pytest.approx(1e-6)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_true_differences_of_architectures(open_tiny, architecture):
    config = read_model_config(open_tiny(architecture))
    is_gemma = architecture == "gemma3"
    style = RopeStyle.NORMAL if architecture in ("llama", "mistral3") else RopeStyle.NEOX
    assert {layer.rope.style for layer in config.layers} == {style}
    assert config.activation is (Activation.GELU if is_gemma else Activation.SILU)
    assert config.has_query_key_norm == (architecture in ("qwen3", "gemma3"))
    assert (config.has_post_norms, config.has_tied_output) == (is_gemma, is_gemma)
    assert config.embedding_scale == (16.0 if is_gemma else 1.0)


def test_every_sixth_gemma_layer_is_global_unless_the_file_says_otherwise(open_tiny):
    gguf = open_tiny("gemma3", num_layers=12, sliding_window=48, rope_base=1e6)
    assert [layer.sliding_window for layer in read_model_config(gguf).layers] == [48, None] * 6
    gguf.metadata = {key: value for key, value in gguf.metadata.items() if not key.endswith("window_pattern")}
    layers = read_model_config(gguf).layers
    assert [layer.sliding_window for layer in layers] == [*[48] * 5, None, *[48] * 5, None]
    assert layers[0].rope.inverse_frequencies[1] == pytest.approx(10000 ** (-2 / 64))
    assert layers[5].rope.inverse_frequencies[1] == pytest.approx(1e6 ** (-2 / 64))


def test_rope_scaling_of_gemma_leaves_local_layers_alone(open_tiny):
    config = read_model_config(open_tiny("gemma3", rope_scaling=RopeScaling("linear", 8.0)))
    local_layer, global_layer = config.layers
    assert local_layer.rope.inverse_frequencies[0] == 1.0
    assert global_layer.rope.inverse_frequencies[0] == 1 / 8


def test_attention_temperature_limits_the_context_to_where_it_is_one(open_tiny):
    scaling = RopeScaling("yarn", 16.0, 256, log_multiplier=1.0)
    gguf = open_tiny("mistral3", rope_scaling=scaling, attention_temperature_scale=0.1)
    config = read_model_config(gguf)
    assert config.max_context == 256
    assert config.layers[0].rope.magnitude == pytest.approx(1.0)


def test_head_dim_defaults_to_an_equal_share_of_the_width(llama):
    del llama.metadata["llama.attention.key_length"], llama.metadata["llama.attention.value_length"]
    assert read_model_config(llama).head_dim == 64


def test_missing_name_falls_back_to_the_file_name(llama):
    del llama.metadata["general.name"]
    assert read_model_config(llama).name == "tiny"


@pytest.mark.parametrize(
    "suffix",
    [
        *("block_count", "context_length", "embedding_length", "feed_forward_length"),
        *("attention.head_count", "attention.layer_norm_rms_epsilon"),
    ],
)
def test_missing_key_is_named(llama, suffix):
    del llama.metadata[f"llama.{suffix}"]
    with pytest.raises(CheckpointError, match=f"'llama.{suffix}' is missing"):
        read_model_config(llama)


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        ("general.architecture", "mamba", UnsupportedModelError, "architecture 'mamba' is not implemented"),
        ("llama.block_count", "two", CheckpointError, "'llama.block_count' is 'two', not a number"),
        ("llama.block_count", 0, CheckpointError, "'llama.block_count' is 0; it must be above zero"),
        ("llama.block_count", 1.5, CheckpointError, "'llama.block_count' is 1.5, not a whole number"),
        ("llama.block_count", [1, 2], UnsupportedModelError, "a value for each layer"),
        ("llama.block_count", 22, CheckpointError, "block_count' is 22, but there are only 21 tensors"),
        ("llama.block_count", 100_000, CheckpointError, "block_count' is 100000, but there are only 21 tensors"),
        ("llama.attention.head_count_kv", 3, CheckpointError, "4 attention heads cannot share 3"),
        ("llama.attention.layer_norm_rms_epsilon", math.nan, CheckpointError, "not a number"),
        ("llama.attention.value_length", 32, UnsupportedModelError, "value_length' is 32 with heads of 64"),
        ("llama.rope.dimension_count", 32, UnsupportedModelError, "dimension_count' is 32 with heads of 64"),
        ("llama.rope.scaling.type", "longrope", UnsupportedModelError, "rope scaling 'longrope' is not implemented"),
        (
            "llama.rope.scaling.type",
            "llama3",
            UnsupportedModelError,
            "Llama 3 factors in the tensor 'rope_freqs.weight'",
        ),
        ("llama.rope.scaling.type", 3, CheckpointError, "'llama.rope.scaling.type' is 3, not a string"),
        ("llama.rope.scaling.factor", -2.0, CheckpointError, "it must be above zero"),
        ("llama.rope.scaling.yarn_ext_factor", 0.5, UnsupportedModelError, "is 0.5, which is not implemented"),
        ("llama.expert_count", 8, UnsupportedModelError, "'llama.expert_count' is 8, which is not implemented"),
        ("llama.attention.causal", False, UnsupportedModelError, "'llama.attention.causal' is False"),
        ("llama.attention.sliding_window", 4096, UnsupportedModelError, "sliding_window' is 4096"),
        ("llama.attention.temperature_scale", 0.1, UnsupportedModelError, "temperature_scale' is 0.1"),
    ],
)
def test_wrong_value_is_named(llama, key, value, error, message):
    llama.metadata[key] = value
    with pytest.raises(error, match=message):
        read_model_config(llama)


def test_gemma_without_a_sliding_window_is_incomplete(open_tiny):
    gguf = open_tiny("gemma3")
    gguf.metadata = {key: value for key, value in gguf.metadata.items() if key != "gemma3.attention.sliding_window"}
    with pytest.raises(CheckpointError, match=r"'gemma3.attention.sliding_window' is missing"):
        read_model_config(gguf)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_required_tensor_is_missed_by_name(open_tiny, architecture):
    gguf = open_tiny(architecture)
    config = read_model_config(gguf)
    required = [tensor.name for tensor in layer_tensors(config, 1) if tensor.is_required]
    for name in [*required, "token_embd.weight", "output_norm.weight"]:
        tensor = gguf.tensors.pop(name)
        with pytest.raises(CheckpointError, match=f"tensor '{name}' is missing"):
            read_model_config(gguf)
        gguf.tensors[name] = tensor


def test_wrong_shape_is_named(llama):
    llama.tensors["blk.0.ffn_up.weight"] = replace(llama.tensors["blk.0.ffn_up.weight"], shape=(256, 512))
    with pytest.raises(CheckpointError, match=r"'blk.0.ffn_up.weight' has shape \(256, 512\) instead of \(512, 256\)"):
        read_model_config(llama)


def test_sizes_that_no_tensor_has_take_no_memory(llama):
    for suffix in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        llama.metadata[f"llama.{suffix}"] = 2_000_000
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=r"'blk.0.attn_q.weight' has shape .* instead of \(8000000, 256\)"):
        read_model_config(llama)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1_000_000


@pytest.mark.parametrize("weight_type", [GgmlType.IQ4_XS, GgmlType.IQ3_S, GgmlType.TQ1_0, GgmlType.MXFP4, GgmlType.F64])
@pytest.mark.parametrize("name", ["token_embd.weight", "blk.1.ffn_up.weight", "blk.0.attn_norm.weight"])
def test_a_weight_type_that_is_not_implemented_is_named(llama, name, weight_type):
    llama.tensors[name] = replace(llama.tensors[name], type=weight_type)
    message = rf"tiny\.gguf: tensor '{name}' has type {weight_type.name}, which is not implemented; .*F32, .*, IQ4_NL"
    with pytest.raises(UnsupportedModelError, match=message):
        read_model_config(llama)


def test_tensor_that_no_decoder_would_use_is_refused(llama):
    llama.tensors["blk.0.ffn_gate_exps.weight"] = llama.tensors["blk.0.ffn_gate.weight"]
    with pytest.raises(UnsupportedModelError, match=r"'blk.0.ffn_gate_exps.weight' is not part of a llama model"):
        read_model_config(llama)


def test_llama3_factors_must_be_above_zero(open_tiny):
    gguf = open_tiny("llama", rope_scaling=RopeScaling("llama3", 8.0))
    factors = gguf.tensors["rope_freqs.weight"]
    gguf.tensors["rope_freqs.weight"] = replace(factors, data=factors.data * 0)
    with pytest.raises(CheckpointError, match=r"'rope_freqs.weight' has factors that are not above zero"):
        read_model_config(gguf)
