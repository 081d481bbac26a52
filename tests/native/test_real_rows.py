"""Rows of real models have the same bits with any batch, chunking, tree, thread count and instruction set."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from paceline.architectures import read_model_config
from paceline.backends.native.model import NativeModel, ThreadPool, instruction_sets
from paceline.checkpoint import GgufFile, resolve_model
from paceline.core import Float32Array
from paceline.operations.workload import read_tasks
from paceline.tokenizer import Tokenizer
from tests.native.decoder_runs import run_chunks
from tests.native.row_promises import (
    BATCH_SIZES,
    NUM_BLOCKS,
    TABLE,
    check_batch,
    check_chunkings,
    check_restored_blocks,
    check_tree,
)

TEXT_LENGTH = 150
REAL_MODELS = [
    "smollm2-135m",
    *(pytest.param(name, marks=pytest.mark.large) for name in ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")),
]


@dataclass(frozen=True)
class RealModel:
    """A model file, a text in the model's tokens, the model on the machine's best instruction set, and the plain logits
    of the text."""

    gguf: GgufFile
    text: list[int]
    model: NativeModel
    plain: Float32Array

    @classmethod
    def load(cls, gguf: GgufFile) -> RealModel:
        task = next(task for task in read_tasks() if task.task == "edit")
        text = Tokenizer.from_gguf(gguf, None).encode_chat(task.messages)[:TEXT_LENGTH]
        model = load(gguf)
        return cls(gguf, text, model, run_chunks(model, text, [1], TABLE))


def load(gguf: GgufFile, *, num_threads: int = 2, instruction_set: str | None = None) -> NativeModel:
    model = NativeModel(
        gguf,
        read_model_config(gguf),
        threads=ThreadPool(num_threads),
        max_positions=2 * TEXT_LENGTH,
        instruction_set=instruction_set,
    )
    model.kv.allocate(NUM_BLOCKS)
    return model


@pytest.fixture(scope="module", params=REAL_MODELS)
def real(request: pytest.FixtureRequest) -> Iterator[RealModel]:
    with GgufFile.open(resolve_model(request.param).path) as gguf:
        yield RealModel.load(gguf)
    gc.collect()


def test_prefill_in_any_chunking_gives_the_bits_of_decoding(real):
    chunkings = [[TEXT_LENGTH], [64], [17], [1, 2, 3, 5, 8, 13, 32], [TEXT_LENGTH - 1, 1]]
    check_chunkings(real.model, real.text, real.plain, chunkings)


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_a_row_does_not_depend_on_its_batch(real, batch_size):
    """Every second sequence has the longest length that fits."""
    longest = min(TEXT_LENGTH, NUM_BLOCKS * 16 // batch_size)
    lengths = [longest if i % 2 else 5 + (11 * i) % (longest - 5) for i in range(batch_size)]
    check_batch(real.model, real.text, real.plain, lengths)


@pytest.mark.parametrize(("start", "depth"), [(60, 9), (121, 16)])
def test_a_tree_node_has_the_bits_of_the_chain(real, start, depth):
    check_tree(real.model, real.text, real.plain, start, depth)


@pytest.mark.parametrize("num_threads", [1, 3, 4])
def test_threads_do_not_change_bits(real, num_threads):
    model = load(real.gguf, num_threads=num_threads)
    assert model.threads.num_threads == num_threads
    check_chunkings(model, real.text, real.plain, [[33], [90, 1, 7]])
    check_batch(model, real.text, real.plain, [20, 150, 65])


@pytest.mark.parametrize("instruction_set", instruction_sets())
def test_instruction_sets_give_equal_bits(real, instruction_set):
    """The scalar oracle is slow, so it computes only the first rows of the text, and a late row on the KV of the best
    instruction set."""
    model = load(real.gguf, instruction_set=instruction_set)
    assert model.instruction_set == instruction_set
    is_oracle = instruction_set == "scalar"
    num_rows = 2 if is_oracle else TEXT_LENGTH
    check_chunkings(model, real.text[:num_rows], real.plain, [[40, 7, 1, 16]])
    late = 135
    check_restored_blocks(real.model, model, real.text[: late + 1 if is_oracle else TEXT_LENGTH], real.plain, late)
    check_restored_blocks(model, real.model, real.text, real.plain, 1 if is_oracle else late)
