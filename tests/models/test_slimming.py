"""Slimmed models: which tokens they can say, what their weights become, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline import _native
from paceline.checkpoint import GgufFile, dequantize
from paceline.checkpoint.ggml_type import GgmlType
from paceline.models import NativeModel, Slimming, ThreadPool, read_model_config
from tests.native.decoder_runs import bits, build_batch, run_chunks, text_rows
from tests.support.tiny_gguf import write_tiny_gguf

TABLE = list(range(8))
TEXT = [int(token) for token in np.random.default_rng(1).integers(0, 384, 40)]


@pytest.fixture(params=["Q4_K", "Q5_0", "Q8_0", "F16"])
def gguf(request, tmp_path):
    with GgufFile.open(write_tiny_gguf(tmp_path / "tiny.gguf", "qwen2", request.param)) as opened:
        yield opened


def load(gguf, slimming=None, instruction_set=None):
    options = {} if slimming is None else {"slimming": slimming}
    config = read_model_config(gguf)
    model = NativeModel(gguf, config, threads=ThreadPool(2), instruction_set=instruction_set, **options)
    model.kv.allocate(len(TABLE))
    return model


def test_tokens_left_out_have_no_logit_and_the_others_keep_theirs(gguf):
    kept = (0, 1, 2, 17, 200, 383)
    whole = run_chunks(load(gguf), TEXT, [len(TEXT)], TABLE)
    slim = load(gguf, Slimming(output_token_ids=kept))
    for sizes in ([1], [3, 17, 1, 19], [len(TEXT)]):
        logits = run_chunks(slim, TEXT, sizes, TABLE)
        assert (bits(logits[:, kept]) == bits(whole[:, kept])).all()
        assert (np.delete(logits, kept, axis=1) == -np.inf).all()


LARGE = {GgmlType.F32, GgmlType.F16, GgmlType.Q8_0, GgmlType.Q6_K, GgmlType.Q5_0}


def rounded(tensor):
    """As Q4_0 where it is a matrix of more than 4.5 bits, by the kernel that has tests of its own."""
    if len(tensor.shape) != 2 or tensor.type not in LARGE:
        return tensor
    data = _native.kernels.quantize_q4_0("scalar", dequantize(tensor))
    return replace(tensor, type=GgmlType.Q4_0, data=data.ravel())


def test_four_bit_weights_are_the_rounded_ones(gguf, monkeypatch):
    slim = load(gguf, Slimming(has_four_bits=True))
    logits = run_chunks(slim, TEXT, [len(TEXT)], TABLE)
    assert slim.weight_bytes <= load(gguf).weight_bytes
    embedding = gguf.tensors["token_embd.weight"]  # as it is, but for its part as an output layer
    output = rounded(gguf.tensors.get("output.weight", embedding))
    tensors = {name: rounded(tensor) for name, tensor in gguf.tensors.items()}
    monkeypatch.setattr(gguf, "tensors", tensors | {"token_embd.weight": embedding, "output.weight": output})
    monkeypatch.setattr(gguf, "release_pages", lambda tensor: None)
    expected = run_chunks(load(gguf), TEXT, [len(TEXT)], TABLE)
    assert (bits(logits) == bits(expected)).all()


def test_every_instruction_set_slims_alike(gguf):
    slimming = Slimming.of_vocabulary(100, 384, [380, 381], has_four_bits=True)
    results = [
        run_chunks(load(gguf, slimming, name), TEXT, [7], TABLE).view(np.uint32) for name in _native.instruction_sets()
    ]
    assert all((result == results[0]).all() for result in results)


def test_a_larger_batch_after_a_smaller_one_leaves_no_stale_logits(gguf):
    model = load(gguf, Slimming(output_token_ids=(3, 5)))
    for length in (1, 9, 2, 33):
        logits = model.forward(build_batch(text_rows(TEXT[:length], 0, TABLE), [TABLE]))
        assert (np.delete(logits, [3, 5], axis=1) == -np.inf).all()
        assert np.isfinite(logits[:, [3, 5]]).all()


@pytest.mark.parametrize(
    ("num_kept", "expected"), [(None, None), (384, None), (500, None), (3, (0, 1, 2, 9, 380)), (1, (0, 2, 9, 380))]
)
def test_the_lowest_ids_and_the_special_ones_are_kept(num_kept, expected):
    slimming = Slimming.of_vocabulary(num_kept, 384, [380, 2, 9], has_four_bits=False)
    assert slimming.output_token_ids == expected


@pytest.mark.parametrize("token_ids", [(), (384,), (-1, 3)])
def test_an_output_layer_without_tokens_of_the_vocabulary_is_refused(gguf, token_ids):
    with pytest.raises(ValueError, match="output layer"):
        load(gguf, Slimming(output_token_ids=token_ids))


@pytest.mark.parametrize(
    ("stored", "packed"),
    [
        ("F32", "Q4_0"),
        ("BF16", "Q4_0"),
        ("Q8_0", "Q4_0"),
        ("Q6_K", "Q4_0"),
        ("Q5_0", "Q4_0"),
        ("Q4_1", "Q4_0"),
        ("Q4_0", "Q4_0"),
        ("Q4_K", "Q4_K"),
        ("IQ4_NL", "IQ4_NL"),
        ("Q2_K", "Q2_K"),
    ],
)
def test_only_larger_types_are_rounded(gguf, stored, packed):
    tensor = replace(gguf.tensors["token_embd.weight"], type=GgmlType[stored], shape=(10, 512))
    assert Slimming(has_four_bits=True).packed_type(tensor) is GgmlType[packed]
    assert Slimming().packed_type(tensor) is GgmlType[stored]
    odd = replace(tensor, type=GgmlType.F16, shape=(10, 500))
    assert Slimming(has_four_bits=True).packed_type(odd) is GgmlType.F16
