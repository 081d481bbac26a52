"""Perplexity of a fixed text: rounded activations and half-float K and V cost little against unrounded numpy."""

from __future__ import annotations

import math

import pytest

from paceline.architectures import read_model_config
from paceline.backends.native.model import NativeModel, ThreadPool
from paceline.backends.reference.model import ReferenceModel
from paceline.checkpoint import GgufFile
from paceline.operations.workload import read_tasks
from paceline.tokenizer import Tokenizer
from tests.support.fast_reference import multiply_together
from tests.support.independent_engine import teacher_forced

pytestmark = pytest.mark.real

NUM_TOKENS = 384


def _perplexity(model, token_ids):
    logprobs = teacher_forced(model, token_ids[:1], token_ids[1:])
    return math.exp(
        -sum(row[token_id] for row, token_id in zip(logprobs, token_ids[1:], strict=True)) / (NUM_TOKENS - 1)
    )


@pytest.mark.parametrize(
    "model_fixture",
    [
        "smollm2_path",
        *(pytest.param(name, marks=pytest.mark.large) for name in ("coder_draft_path", "coder_target_path")),
    ],
)
def test_perplexity_is_the_unrounded_models_within_half_a_percent(request, model_fixture):
    passages = "\n\n".join(task.messages[-1]["content"] for task in read_tasks() if task.task in ("summarize", "edit"))
    with GgufFile.open(request.getfixturevalue(model_fixture)) as gguf:
        token_ids = Tokenizer.from_gguf(gguf, None).encode(passages, parse_special=False)[:NUM_TOKENS]
        assert len(token_ids) == NUM_TOKENS
        exact = _perplexity(ReferenceModel(gguf, multiply=multiply_together), token_ids)
        native = _perplexity(NativeModel(gguf, read_model_config(gguf), threads=ThreadPool(2)), token_ids)
    assert 1.2 < exact < 200
    assert native == pytest.approx(exact, rel=0.005)
