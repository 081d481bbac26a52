"""Attention over several chunks of positions, for each type of KV cache, has equal bits however the work is divided.

The texts of the other tests end within the first chunk of 256 positions; these texts are longer.
"""

from __future__ import annotations

import numpy as np
import pytest

from paceline.architectures import read_model_config
from paceline.backends.native.model import NativeModel, ThreadPool, instruction_sets
from paceline.backends.reference.model import ReferenceModel, load_vectors, store_vectors
from paceline.checkpoint import GgufFile
from paceline.core import KvCacheType
from tests.native.decoder_runs import BLOCK_SIZE, bits, run_chunks
from tests.native.row_promises import NUM_BLOCKS, TABLE, check_batch, check_chunkings, check_restored_blocks, check_tree
from tests.support.tiny_gguf import write_tiny_gguf

TEXT_LENGTH = len(TABLE) * BLOCK_SIZE  # two whole chunks of positions
SHAPES = {
    "windows": ("gemma3", {"sliding_window": 90}),
    "long-window": ("gemma3", {"sliding_window": 300}),
    "odd": ("llama", {"hidden_size": 96, "num_heads": 7, "num_kv_heads": 1, "head_dim": 48, "ffn_size": 96}),
    "wide": ("qwen2", {"num_heads": 16, "num_kv_heads": 2, "head_dim": 128}),
}


@pytest.fixture(scope="module", params=SHAPES)
def gguf(request, tmp_path_factory):
    architecture, shape = SHAPES[request.param]
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    with GgufFile.open(write_tiny_gguf(path, architecture, "F16", context_length=1024, **shape)) as opened:
        yield opened


@pytest.fixture(scope="module", params=list(KvCacheType))
def kv_cache_type(request):
    return request.param


@pytest.fixture(scope="module")
def text(gguf):
    return np.random.default_rng(5).integers(0, read_model_config(gguf).vocab_size, TEXT_LENGTH).tolist()


@pytest.fixture(scope="module")
def load(gguf, kv_cache_type):
    def load_model(num_threads=2, instruction_set=None):
        config = read_model_config(gguf)
        model = NativeModel(
            gguf,
            config,
            threads=ThreadPool(num_threads),
            instruction_set=instruction_set,
            kv_cache_type=kv_cache_type,
        )
        model.kv.allocate(NUM_BLOCKS)
        return model

    return load_model


@pytest.fixture(scope="module")
def plain(load, text):
    """Returns the logits of every position, computed one row at a time."""
    return run_chunks(load(), text, [1], TABLE)


def test_prefill_in_any_chunking_gives_the_bits_of_decoding(load, text, plain):
    check_chunkings(load(), text, plain, [[TEXT_LENGTH], [97], [250, 12, 1, 5, 16, 33]])


@pytest.mark.parametrize("num_threads", [1, 3, 8])
def test_threads_do_not_change_bits(load, text, plain, num_threads):
    check_chunkings(load(num_threads), text, plain, [[200, 100, 3, 1]])


@pytest.mark.parametrize("instruction_set", instruction_sets())
def test_instruction_sets_give_equal_bits(load, text, plain, instruction_set):
    check_chunkings(load(instruction_set=instruction_set), text[:300], plain, [[250, 7, 1, 12]])


def test_a_row_does_not_depend_on_its_batch(load, text, plain):
    check_batch(load(), text, plain, [3, 260, 40, 512])


@pytest.mark.parametrize("start", [249, 256, 300, 470])
def test_a_tree_node_has_the_bits_of_the_chain(load, text, plain, start):
    check_tree(load(), text, plain, start, depth=12)


def test_blocks_can_be_saved_and_restored(load, text, plain):
    check_restored_blocks(load(), load(), text, plain, start=270)


def test_agrees_with_the_reference_model(gguf, kv_cache_type, text, plain):
    """If an element of K or V is rounded to the other side, the logits change only a little."""
    reference = ReferenceModel(gguf, kv_cache_type=kv_cache_type)
    reference.kv.allocate(NUM_BLOCKS)
    difference = np.abs(plain - run_chunks(reference, text, [TEXT_LENGTH], TABLE))
    assert difference.max() < (0.02 if kv_cache_type is KvCacheType.F16 else 0.2)
    assert difference.mean() < (0.001 if kv_cache_type is KvCacheType.F16 else 0.01)


def test_types_give_different_logits_of_about_the_same_value(gguf, text):
    logits = []
    for kv_cache_type in KvCacheType:
        model = NativeModel(gguf, read_model_config(gguf), threads=ThreadPool(2), kv_cache_type=kv_cache_type)
        model.kv.allocate(NUM_BLOCKS)
        logits.append(run_chunks(model, text, [TEXT_LENGTH], TABLE))
    assert (bits(logits[0]) != bits(logits[1])).any()
    assert np.abs(logits[0] - logits[1]).mean() < 0.15


def test_q8_takes_a_byte_an_element_and_a_float_a_scale(gguf):
    config = read_model_config(gguf)
    model = NativeModel(gguf, config, threads=ThreadPool(1), kv_cache_type=KvCacheType.Q8)
    num_vectors = BLOCK_SIZE * config.num_layers * config.num_kv_heads
    num_scales = config.head_dim // 16 + 1
    assert model.kv.block_size_bytes == num_vectors * (2 * config.head_dim + 4 * num_scales)
    assert ReferenceModel(gguf, kv_cache_type=KvCacheType.Q8).kv.block_size_bytes == model.kv.block_size_bytes


@pytest.mark.parametrize("scale_elements", [16, 64])
def test_q8_rounds_to_half_a_step_and_keeps_zeros(scale_elements):
    vectors = np.random.default_rng(0).standard_normal((5, 3, 64)).astype(np.float32)
    vectors[1, 2] = 0
    rounded = load_vectors(store_vectors(vectors, KvCacheType.Q8, scale_elements), KvCacheType.Q8)
    runs = np.abs(vectors).reshape(5, 3, -1, scale_elements)
    step = np.repeat(runs.max(axis=-1) / 127, scale_elements, axis=-1)
    assert (np.abs(rounded - vectors) <= 0.501 * step).all()
    assert not rounded[1, 2].any()
