"""The crossover benchmark runs both modes on the same streams, and each answer has its own tenant."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from laboratory import crossover as crossover_module
from laboratory.crossover import Crossover, StreamsRun, crossover_points

from paceline.config import EngineConfig
from paceline.core import Request
from paceline.core.errors import UsageError
from paceline.engine import Engine
from paceline.operations.timed_answers import TimedAnswer, answer_all
from paceline.operations.workload import Task

TASKS = [
    Task("copy-1", "copy", [{"role": "user", "content": "abc abc abc"}], 24),
    Task("copy-2", "copy", [{"role": "user", "content": "one two"}], 24),
    Task("talk-1", "talk", [{"role": "user", "content": "hello"}], 12),
]


@pytest.fixture(scope="module")
def runs(tiny_pair) -> list[StreamsRun]:
    config = EngineConfig(model=str(tiny_pair.target), draft_model=str(tiny_pair.draft), context_window_size=256)
    crossover = Crossover(config, TASKS, num_streams=(1, 5))
    return list(crossover.measure(num_pairs=3))


def test_pairs_alternate_and_give_the_same_texts(runs: list[StreamsRun]) -> None:
    order = ["plain", "auto", "auto", "plain", "plain", "auto"]
    assert [(run.num_streams, run.mode) for run in runs] == [(count, mode) for count in (1, 5) for mode in order]
    assert all(run.is_text_equal for run in runs)
    assert [run.num_tokens for run in runs] == [24] * 6 + [24 + 12 + 24 + 24 + 12] * 6


def test_prompts_are_read_before_the_clock_starts(runs: list[StreamsRun]) -> None:
    """Plain decoding takes one step for each token. It may take one more for the end of the prompt, which does not fill
    a block of the prefix cache."""
    assert all(24 <= run.num_steps <= 25 for run in runs if run.mode == "plain")
    assert all(run.wasted_share == 0.0 for run in runs if run.mode == "plain")


def test_no_two_answers_share_a_tenant(tiny_pair, monkeypatch: pytest.MonkeyPatch) -> None:
    tenants: list[str] = []

    def listen(engine: Engine, requests: Sequence[Request]) -> list[TimedAnswer]:
        if requests[0].sampling.max_tokens != 1:  # this run is timed
            tenants.extend(request.tenant for request in requests)
        return answer_all(engine, requests)

    monkeypatch.setattr(crossover_module, "answer_all", listen)
    config = EngineConfig(model=str(tiny_pair.target), drafters=("suffix",), context_window_size=256)
    runs = list(Crossover(config, TASKS, num_streams=(1, 5), max_tokens=4).measure(num_pairs=2))
    assert len(runs) == 8
    assert len(tenants) == len(set(tenants)) == 4 * 1 + 4 * 5
    assert "" not in tenants


def test_each_prompt_is_read_for_the_tenant_that_it_is_timed_for(tiny_pair, monkeypatch: pytest.MonkeyPatch) -> None:
    cached: list[tuple[int, int]] = []

    def listen(engine: Engine, requests: Sequence[Request]) -> list[TimedAnswer]:
        answers = answer_all(engine, requests)
        if requests[0].sampling.max_tokens != 1:
            lengths = [len(request.prompt_token_ids) for request in requests]
            cached.extend(
                (answer.outputs[0].num_cached_tokens, length) for answer, length in zip(answers, lengths, strict=True)
            )
        return answers

    monkeypatch.setattr(crossover_module, "answer_all", listen)
    config = EngineConfig(model=str(tiny_pair.target), drafters=("suffix",), context_window_size=256)
    list(Crossover(config, TASKS, num_streams=(1, 5), max_tokens=4).measure(num_pairs=2))
    assert [num_cached for num_cached, _ in cached] == [(length - 1) // 16 * 16 for _, length in cached]
    assert min(num_cached for num_cached, _ in cached) > 0


def test_points_are_medians_of_pairs(runs: list[StreamsRun]) -> None:
    [one, five] = crossover_points(runs)
    assert (one.num_streams, one.num_pairs, five.num_streams) == (1, 3, 5)
    ratios = [auto.tokens_per_s / plain.tokens_per_s for plain, auto in zip_pairs(runs[:6])]
    assert one.ratio == sorted(ratios)[1]
    assert one.is_text_equal


def zip_pairs(runs: list[StreamsRun]) -> list[tuple[StreamsRun, StreamsRun]]:
    """Returns the plain and the automatic run of each pair."""
    by_key = {(run.pair, run.mode): run for run in runs}
    return [(by_key[pair, "plain"], by_key[pair, "auto"]) for pair in range(3)]


def test_without_drafters_there_is_nothing_to_compare(tiny_pair) -> None:
    config = EngineConfig(model=str(tiny_pair.target), drafters=(), context_window_size=256)
    with pytest.raises(UsageError, match="nothing to compare"):
        Crossover(config, TASKS)
