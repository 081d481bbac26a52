"""The promise on real models: mixed batches with joins and aborts, every window, greedy and sampled."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from paceline import Engine, EngineConfig
from paceline.core import Request, SamplingParams, SpeculationMode, SpeculationParams
from tests.engine.engine_factory import answer, run

SUBJECTS = ("a sorted list", "a bicycle race", "the first ten primes", "rain in spring", "a bank account", "two trains")
TASKS = ("Write a short Python class for", "Explain in simple words", "Write a poem about", "Count and list facts on")


def make_requests(engine: Engine, count: int, max_tokens: int) -> list[Request]:
    """Chat requests with windows 1 to 16 in turn, half of them sampled."""
    questions = [f"{task} {subject}." for subject in SUBJECTS for task in TASKS]
    common = {"max_tokens": max_tokens, "ignore_eos": True, "num_logprobs": 0}
    samplings = [{"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.95}]
    return [
        Request(
            request_id=f"r{i}",
            prompt_token_ids=engine.tokenizer.encode_chat([{"role": "user", "content": questions[i % len(questions)]}]),
            sampling=SamplingParams(**common, **samplings[i % 2], seed=i),
            speculation=SpeculationParams(max_window=1 + i % 16),
        )
        for i in range(count)
    ]


def plain_answers(engine: Engine, requests: list[Request]) -> dict[str, tuple[object, ...]]:
    """Answers without any draft."""
    off = SpeculationParams(mode=SpeculationMode.OFF)
    for request in requests:
        engine.add(msgspec.structs.replace(request, speculation=off))
    engine.clear_prefix_cache()
    return {name: answer(outputs) for name, outputs in run(engine).items()}


def answers_among_joins_and_aborts(engine: Engine, requests: list[Request]) -> dict[str, tuple[object, ...]]:
    """Answers while each request joins at a random step, with a twin that is aborted at another."""
    generator = random.Random(len(requests))
    waiting, twins = list(requests), []
    outputs: dict[str, list[object]] = {}
    while waiting or engine.has_unfinished:
        if waiting and generator.random() < 0.3:
            engine.add(waiting.pop())
        if waiting and generator.random() < 0.05:
            twins.append(msgspec.structs.replace(waiting[0], request_id=f"twin {len(twins)}"))
            engine.add(twins[-1])
        if twins and (not waiting or generator.random() < 0.1):
            engine.abort(twins.pop().request_id)
        for output in engine.step():
            outputs.setdefault(output.request_id, []).append(output)
        engine.check_integrity()
    return {request.request_id: answer(outputs[request.request_id]) for request in requests}


def check(config: EngineConfig, num_requests: int, max_tokens: int) -> None:
    engine = Engine(config)
    requests = make_requests(engine, num_requests, max_tokens)
    plain = plain_answers(engine, requests)
    assert engine.stats().num_draft_tokens == 0
    assert sum(len(answer[0]) for answer in plain.values()) == num_requests * max_tokens
    assert answers_among_joins_and_aborts(engine, requests) == plain
    assert engine.stats().num_accepted_tokens > 0
    assert engine.stats().num_free_blocks == engine.stats().num_blocks


def test_smollm2_says_the_same(smollm2_path: Path) -> None:
    check(EngineConfig(model=str(smollm2_path), num_speculative_tokens=16, context_window_size=512), 6, 32)


@pytest.mark.large
def test_smollm2_says_the_same_over_5000_tokens(smollm2_path: Path) -> None:
    check(EngineConfig(model=str(smollm2_path), num_speculative_tokens=16, context_window_size=512), 40, 128)


@pytest.mark.large
@pytest.mark.parametrize("drafter", ["ngram", "draft-model"])
def test_the_coder_pair_says_the_same_over_5000_tokens(
    coder_target_path: Path, coder_draft_path: Path, drafter: str
) -> None:
    config = EngineConfig(
        model=str(coder_target_path),
        draft_model=str(coder_draft_path),
        drafters=(drafter,),
        num_speculative_tokens=16,
        context_window_size=512,
    )
    check(config, 40, 128)
