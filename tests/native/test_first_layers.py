"""The first layers of a model say what a model of these layers says, and share the whole model's KV, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.checkpoint import GgufFile
from paceline.core import KvCacheType
from paceline.core.errors import ConfigError
from paceline.models import FirstLayers, NativeModel, ThreadPool, read_model_config
from tests.native.decoder_runs import bits, build_batch, run_chunks, text_rows
from tests.native.row_promises import NUM_BLOCKS, check_batch, check_chunkings, check_tree
from tests.support.tiny_gguf import write_tiny_pair

NUM_LAYERS = 4
TEXT_LENGTH = 90
TABLE = list(range(NUM_BLOCKS))
KINDS = [("qwen2", "Q4_K", 1), ("gemma3", "Q5_0", 2), ("llama", "Q6_K", 3)]


def load(path, **options):
    with GgufFile.open(path) as gguf:
        model = NativeModel(gguf, read_model_config(gguf), threads=ThreadPool(2), **options)
    model.kv.allocate(NUM_BLOCKS)
    return model


class Depths:
    """A model of four layers, its first ones, and a file of its own with nothing but these."""

    def __init__(self, directory, architecture: str, weight_type: str, num_first: int) -> None:
        shape = {"num_layers": NUM_LAYERS, "num_draft_layers": num_first}
        self.pair = write_tiny_pair(directory, architecture, weight_type, **shape)
        self.whole = load(self.pair.target)
        self.first = FirstLayers(self.whole, num_first)
        self.alone = load(self.pair.draft)
        self.text = np.random.default_rng(3).integers(0, self.whole.config.vocab_size, TEXT_LENGTH).tolist()


@pytest.fixture(params=KINDS, ids=str)
def depths(request, tmp_path) -> Depths:
    return Depths(tmp_path, *request.param)


def test_they_say_what_a_model_of_these_layers_says(depths):
    expected = run_chunks(depths.alone, depths.text, [1], TABLE)
    assert not np.array_equal(bits(expected), bits(run_chunks(depths.whole, depths.text, [7], TABLE)))
    check_chunkings(depths.first, depths.text, expected, [[TEXT_LENGTH], [1], [17, 3, 40]])
    check_batch(depths.first, depths.text, expected, [5 + (11 * i) % 27 for i in range(6)])
    check_tree(depths.first, depths.text, expected, start=40, depth=6)


def test_they_go_on_from_what_the_whole_model_has_read_and_the_whole_model_after_them(depths):
    """Both write the same slots in turn; what either says is what it says alone."""
    whole, alone = (run_chunks(model, depths.text, [13], TABLE) for model in (depths.whole, depths.alone))
    depths.whole.kv.allocate(NUM_BLOCKS)
    for start, end in ((0, 30), (30, 37), (37, 38), (38, TEXT_LENGTH)):
        rows = text_rows(depths.text[start:end], start, TABLE)
        if start > 0:
            assert np.array_equal(bits(depths.first.forward(build_batch(rows, [TABLE]))), bits(alone[start:end]))
        assert np.array_equal(bits(depths.whole.forward(build_batch(rows, [TABLE]))), bits(whole[start:end]))


def test_they_leave_the_other_layers_kv_as_it_is(depths):
    depths.whole.forward(build_batch(text_rows(depths.text[:16], 0, TABLE), [TABLE]))
    before = depths.whole.kv.read_block(0)
    depths.first.forward(build_batch(text_rows(depths.text[40:56], 0, TABLE), [TABLE]))
    after = depths.whole.kv.read_block(0)
    size = len(before) // NUM_LAYERS * depths.first.config.num_layers
    assert not np.array_equal(before[:size], after[:size])
    assert np.array_equal(before[size:], after[size:])


def test_they_share_int8_kv(tmp_path):
    pair = write_tiny_pair(tmp_path, "llama", "Q4_K", num_draft_layers=2)
    whole, alone = (load(path, kv_cache_type=KvCacheType.Q8) for path in (pair.target, pair.draft))
    text = list(range(40, 90))
    expected = run_chunks(alone, text, [1], TABLE)
    whole.forward(build_batch(text_rows(text[:-1], 0, TABLE), [TABLE]))
    last = build_batch(text_rows(text[-1:], len(text) - 1, TABLE), [TABLE])
    assert np.array_equal(bits(FirstLayers(whole, 2).forward(last)), bits(expected[-1:]))


@pytest.mark.parametrize("num_layers", [0, NUM_LAYERS, NUM_LAYERS + 1, -1])
def test_some_layers_must_be_left_out(tmp_path, num_layers):
    depths = Depths(tmp_path, "llama", "Q4_K", 1)
    message = f"shared_layers is {num_layers}, but tiny llama has {NUM_LAYERS} layers; choose 1 to {NUM_LAYERS - 1}"
    with pytest.raises(ConfigError, match=message):
        FirstLayers(depths.whole, num_layers)
    if not 0 < num_layers <= NUM_LAYERS:
        with pytest.raises(ValueError, match="some of the model's layers"):
            depths.whole.forward(build_batch(text_rows([1], 0, TABLE), [TABLE]), num_layers)
