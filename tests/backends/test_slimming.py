"""Slimmed models: which tokens have logits, what happens to the weights, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline import _native
from paceline.architectures import read_model_config
from paceline.backends.native.model import NativeModel, ThreadPool
from paceline.backends.slimming import Slimming
from paceline.checkpoint import GgufFile, dequantize
from paceline.checkpoint.ggml_type import GgmlType
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


@pytest.mark.parametrize("sizes", [[1], [3, 17, 1, 19], [len(TEXT)]])
def test_only_kept_tokens_and_those_of_the_text_have_logits_and_keep_their_bits(gguf, sizes):
    kept = {0, 1, 2, 17, 200, 383}
    whole = run_chunks(load(gguf), TEXT, [len(TEXT)], TABLE)
    logits = run_chunks(load(gguf, Slimming(output_token_ids=tuple(sorted(kept)))), TEXT, sizes, TABLE)
    ends = np.minimum(np.cumsum([*sizes, *([sizes[-1]] * len(TEXT))]), len(TEXT))
    for position in range(len(TEXT)):
        read = ends[ends > position][0]  # the model has read the text up to the end of the chunk
        present = sorted({*kept, *TEXT[:read]})
        assert (bits(logits[position, present]) == bits(whole[position, present])).all()
        assert (np.delete(logits[position], present) == -np.inf).all()


def enlarge_vocabulary(gguf, factor, monkeypatch):
    """Makes the vocabulary larger by repeating the rows of the token embeddings and of the output layer."""
    tensors = dict(gguf.tensors)
    for name in ("token_embd.weight", "output.weight"):
        if name in tensors:
            rows, columns = tensors[name].shape
            data = np.tile(tensors[name].data, factor)
            tensors[name] = replace(tensors[name], shape=(rows * factor, columns), data=data)
    monkeypatch.setattr(gguf, "tensors", tensors)
    monkeypatch.setattr(gguf, "release_pages", lambda tensor: None)


def test_tokens_of_the_text_give_way_to_later_ones(tmp_path, monkeypatch):
    num_spare = 1024
    with GgufFile.open(write_tiny_gguf(tmp_path / "tiny.gguf", "qwen2", "Q8_0", num_layers=1)) as gguf:
        enlarge_vocabulary(gguf, 8, monkeypatch)
        slim = load(gguf, Slimming(output_token_ids=(5,), has_four_bits=True))
        whole = load(gguf, Slimming(has_four_bits=True))
    text = np.random.default_rng(2).permutation(whole.config.vocab_size)[: num_spare + 300].tolist()
    for first in range(0, len(text), 60):
        batch = build_batch(text_rows(text[first : first + 60], 0, TABLE), [TABLE])
        logits, expected = slim.forward(batch), whole.forward(batch)
        read = [token for token in text[: first + 60] if token != 5]
        present = sorted({5, *read[-num_spare:]})
        assert (bits(logits[:, present]) == bits(expected[:, present])).all()
        assert (np.delete(logits, present, axis=1) == -np.inf).all()


LARGE = {GgmlType.F32, GgmlType.F16, GgmlType.Q8_0, GgmlType.Q6_K, GgmlType.Q5_0}


def rounded(tensor):
    """Returns the tensor rounded to Q4_0 if it is a matrix with more than 4.5 bits a weight, except K and V matrices.

    It uses the rounding kernel, which has its own tests.
    """
    is_kept = tensor.name.endswith(("attn_k.weight", "attn_v.weight"))
    if len(tensor.shape) != 2 or tensor.type not in LARGE or is_kept:
        return tensor
    data = _native.kernels.quantize_q4_0("scalar", dequantize(tensor))
    return replace(tensor, type=GgmlType.Q4_0, data=data.ravel())


def test_four_bit_weights_are_the_rounded_ones(gguf, monkeypatch):
    slim = load(gguf, Slimming(has_four_bits=True))
    logits = run_chunks(slim, TEXT, [len(TEXT)], TABLE)
    assert slim.weight_bytes <= load(gguf).weight_bytes
    embedding = gguf.tensors["token_embd.weight"]  # not rounded as an embedding, only as a tied output layer
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
    present = sorted({3, 5, *TEXT[:33]})
    for length in (33, 1, 40, 9):
        logits = model.forward(build_batch(text_rows((TEXT[:33] * 2)[:length], 0, TABLE), [TABLE]))
        assert (np.delete(logits, present, axis=1) == -np.inf).all()
        assert np.isfinite(logits[:, present]).all()


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


@pytest.mark.parametrize("name", ["attn_k", "attn_v"])
def test_keys_and_values_stay_as_they_are(gguf, name):
    tensor = gguf.tensors[f"blk.0.{name}.weight"]
    assert Slimming(has_four_bits=True).packed_type(tensor) is tensor.type
