"""The first layers of a model give the logits of a model of only these layers, and share the whole model's KV, bit for
bit."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.architectures import read_model_config
from paceline.backends.first_layers import FirstLayers
from paceline.backends.native.model import NativeModel, ThreadPool
from paceline.checkpoint import GgufFile
from paceline.core import KvCacheType
from paceline.core.errors import ConfigError
from tests.native.decoder_runs import bits, build_batch, run_chunks, slot_at, text_rows
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
    """A model of four layers, its first layers, and a model from a file that has only these first layers."""

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
    """Both write the same slots in turn, and each gives the logits that it gives alone."""
    whole, alone = (run_chunks(model, depths.text, [13], TABLE) for model in (depths.whole, depths.alone))
    depths.whole.kv.allocate(NUM_BLOCKS)
    for start, end in ((0, 30), (30, 37), (37, 38), (38, TEXT_LENGTH)):
        rows = text_rows(depths.text[start:end], start, TABLE)
        if start > 0:
            assert np.array_equal(bits(depths.first.forward(build_batch(rows, [TABLE]))), bits(alone[start:end]))
        assert np.array_equal(bits(depths.whole.forward(build_batch(rows, [TABLE]))), bits(whole[start:end]))


def plain_bits(depths: Depths, text: list[int]) -> np.ndarray:
    """Returns the bits of every row's logits if only passes of the whole model ever run."""
    other = load(depths.pair.target)
    return bits(run_chunks(other, text, [1], TABLE))


@pytest.mark.parametrize("num_drafted", [1, 2, 5])
def test_the_whole_model_goes_on_where_they_ended(depths, num_drafted):
    """Runs steps as in serving. The first layers run the last token and all drafted tokens but the last, one by one.
    Then the whole model runs all of them, drafted ones included. The blocks are in no order."""
    text, table = depths.text, [7, 3, 11, 0, 5, 9]
    expected = plain_bits(depths, text)
    depths.whole.forward(build_batch(text_rows(text[:30], 0, table), [table]))
    for start in range(30, TEXT_LENGTH - num_drafted, num_drafted + 1):
        before = depths.whole.num_resumed_rows
        for position in range(start, start + num_drafted):
            depths.first.forward(build_batch(text_rows([text[position]], position, table), [table]))
        rows = text_rows(text[start : start + num_drafted + 1], start, table)
        logits = depths.whole.forward(build_batch(rows, [table]))
        assert np.array_equal(bits(logits), expected[start : start + num_drafted + 1])
        assert depths.whole.num_resumed_rows - before == num_drafted


def test_rows_of_many_sequences_resume_beside_others_that_do_not(depths):
    """Three sequences draft 0, 1 and 4 tokens beside a chunk of a prompt. The rows are ordered as in an engine."""
    text = depths.text
    expected = plain_bits(depths, text)
    tables = [[4 * i + j for j in range(4)] for i in range(4)]
    lengths, windows = [20, 33, 41], [0, 1, 4]
    for table, length in zip(tables, lengths, strict=False):
        depths.whole.forward(build_batch(text_rows(text[:length], 0, table), [table]))
    for depth in range(4):
        active = [i for i in range(3) if windows[i] > depth]
        rows = [
            row
            for number, i in enumerate(active)
            for row in text_rows([text[lengths[i] + depth]], lengths[i] + depth, tables[i], number)
        ]
        depths.first.forward(build_batch(rows, [tables[i] for i in active]))
    rows = [
        row
        for i in range(3)
        for row in text_rows(text[lengths[i] : lengths[i] + windows[i] + 1], lengths[i], tables[i], i)
    ]
    rows += text_rows(text[:17], 0, tables[3], 3)
    before = depths.whole.num_resumed_rows
    logits = bits(depths.whole.forward(build_batch(rows, tables)))
    assert depths.whole.num_resumed_rows - before == 1 + 4
    positions = [row.position for row in rows]
    assert np.array_equal(logits, expected[positions])


def test_rows_do_not_resume_from_another_text(depths):
    """Rows do not resume if anything differs: the token, a token before it, a new draft, the blocks, or moved KV."""
    text, other = depths.text, [(token + 1) % 300 for token in depths.text]
    table = [2, 1, 0, 3]
    whole, first = depths.whole, depths.first

    def draft(tokens: list[int], position: int, tables: list[int] = table) -> None:
        for number, token in enumerate(tokens):
            first.forward(build_batch(text_rows([token], position + number, tables), [tables]))

    def check(tokens: list[int], position: int, num_resumed: int, tables: list[int] = table, before: list[int] = text):
        expected = plain_bits(depths, [*before[:position], *tokens])[position:]
        count = whole.num_resumed_rows
        assert np.array_equal(bits(whole.forward(build_batch(text_rows(tokens, position, tables), [tables]))), expected)
        assert whole.num_resumed_rows - count == num_resumed

    whole.forward(build_batch(text_rows(text[:20], 0, table), [table]))
    draft(text[20:24], 20)
    check([text[20], text[21], other[22], text[23]], 20, 2)
    draft(text[20:24], 20)
    check([other[20], *text[21:24]], 20, 0)
    draft(text[20:24], 20)
    draft([other[21]], 21)
    check([text[20], other[21], *text[22:24]], 20, 2)
    draft(text[20:24], 20)
    draft([other[20]], 20)
    draft([text[20]], 20)
    check(text[20:24], 20, 1)
    draft(text[20:24], 20)
    check(text[20:24], 20, 4)
    check(text[20:24], 20, 0)
    draft(text[20:22], 20)
    whole.kv.move([(slot_at(table, 3), slot_at(table, 40))])
    check(text[20:22], 20, 0)
    elsewhere = [5, 4, 0, 3]
    draft(text[33:35], 33)
    whole.forward(build_batch(text_rows(other[:33], 0, elsewhere), [elsewhere]))
    draft(text[33:35], 33)
    check(text[33:35], 33, 0, elsewhere, other)


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
            depths.whole.forward_layers(build_batch(text_rows([1], 0, TABLE), [TABLE]), num_layers)
