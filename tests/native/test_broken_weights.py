"""A file with a weight that is not finite: requests end with an error instead of a meaningless answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline import Engine, EngineConfig, SamplingParams
from paceline.architectures import read_model_config
from paceline.backends.native.model import NativeModel, ThreadPool, instruction_sets
from paceline.checkpoint import GgufFile
from paceline.core import FinishReason, KvCacheType
from paceline.drafters.chains.chain_batch import TokenRun, build_chain_batch
from tests.support.tiny_gguf import write_tiny_gguf

INFINITY = np.float16(np.inf).tobytes()


def with_infinite_scale(path: Path, name: str, target: Path) -> Path:
    """Writes a copy in which the scale of the first block of tensor `name`, of type Q4_0, is infinite."""
    with GgufFile.open(path) as gguf:
        block = bytes(gguf.tensors[name].data.reshape(-1)[:18])
    content = path.read_bytes()
    assert content.count(block) == 1
    target.write_bytes(content.replace(block, INFINITY + block[2:]))
    return target


@pytest.fixture(scope="module")
def broken_path(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    path = write_tiny_gguf(directory / "tiny.gguf", "qwen2", "Q4_0")
    return with_infinite_scale(path, "blk.0.attn_output.weight", directory / "broken.gguf")


@pytest.mark.parametrize("kv_cache_type", KvCacheType)
@pytest.mark.parametrize("instruction_set", instruction_sets())
def test_logits_are_nan_on_every_instruction_set(broken_path, instruction_set, kv_cache_type):
    with GgufFile.open(broken_path) as gguf:
        model = NativeModel(
            gguf,
            read_model_config(gguf),
            threads=ThreadPool(2),
            instruction_set=instruction_set,
            kv_cache_type=kv_cache_type,
        )
    model.kv.allocate(2)
    batch = build_chain_batch([TokenRun([0, 1], 0, list(range(20)), True, 20)], model.kv.block_size)
    assert np.isnan(model.forward(batch)).all()


def test_a_request_ends_with_an_error(broken_path):
    engine = Engine(EngineConfig(model=str(broken_path), num_threads=2, speculation="fixed"))
    (completion,) = engine.generate(["the riders"], SamplingParams(max_tokens=8, temperature=0.0))
    assert completion.finish_reason is FinishReason.ERROR
    assert completion.token_ids == []
