"""Tests scheduling from outside: fairness, the order of arrival, preemption, shared prefixes, and limits of drafts."""

from __future__ import annotations

import pytest
from msgspec import structs

from paceline.core.errors import InsufficientMemoryError
from tests.engine.engine_factory import CONTEXT_SIZE, request, run, token_ids
from tests.engine.scripted_drafters import WrongDrafter

GREEDY = {"temperature": 0.0, "ignore_eos": True}


def text(first: int, length: int) -> list[int]:
    return [32 + (first * 7 + i * i) % 90 for i in range(length)]


def test_decoding_goes_on_while_a_long_prompt_is_read(engines):
    engine = engines.make(window=0, prefill_chunk_size=8)
    engine.add(request("short", text(1, 4), max_tokens=20, **GREEDY))
    assert len(engine.step()) == 1
    engine.add(request("long", text(2, 80), max_tokens=3, **GREEDY))
    names = [[output.request_id for output in engine.step()] for _ in range(10)]
    assert names[:9] == [["short"]] * 9
    assert names[9] == ["short", "long"]


def test_prompts_go_on_while_others_decode_and_share_the_chunk_in_order_of_arrival(engines):
    engine = engines.make(window=0, prefill_chunk_size=16, max_batch_size=8)
    for name, length in (("a", 10), ("b", 10), ("c", 30)):
        engine.add(request(name, text(ord(name), length), max_tokens=30, **GREEDY))
    first_steps: dict[str, int] = {}
    for step in range(6):
        for output in engine.step():
            first_steps.setdefault(output.request_id, step)
    assert first_steps == {"a": 0, "b": 1, "c": 3}


def test_no_more_than_a_batch_runs_and_the_queue_is_first_come_first_served(engines):
    engine = engines.make(window=0, max_batch_size=2)
    for number in range(5):
        engine.add(request(f"r{number}", text(number, 5), max_tokens=4, **GREEDY))
    finished = []
    while engine.has_unfinished:
        finished += [output.request_id for output in engine.step() if output.finish_reason]
        assert engine.stats().num_running <= 2
    assert finished == ["r0", "r1", "r2", "r3", "r4"]


def test_the_youngest_is_preempted_and_finishes_after_the_older(engines):
    engine = engines.make(window=0, num_blocks=5, context_window_size=80, max_batch_size=3)
    for name in ("old", "young"):
        engine.add(request(name, text(len(name), 30), max_tokens=40, **GREEDY))
    outputs = run(engine)
    alone = engines.make(window=0)
    alone.add(request("young", text(5, 30), max_tokens=40, **GREEDY))
    assert engine.stats().num_preemptions >= 1
    assert token_ids(outputs["young"]) == token_ids(run(alone)["young"])
    assert engine.stats().num_free_blocks == 5


def test_the_last_sequence_may_use_every_block(engines):
    engine = engines.make(window=0, num_blocks=5, context_window_size=80, has_prefix_cache=False)
    engine.add(request("full", text(1, 40), **GREEDY))
    outputs = run(engine)["full"]
    assert len(token_ids(outputs)) == 40
    assert outputs[-1].finish_reason == "length"
    assert engine.stats().num_preemptions == 0


def test_fewer_blocks_than_one_context_are_refused(engines):
    with pytest.raises(InsufficientMemoryError, match="cannot hold a context of 256 tokens"):
        engines.make(num_blocks=CONTEXT_SIZE // 16 - 1)


def test_choices_of_one_prompt_wait_for_the_first_to_compute_it(engines):
    engine = engines.make(window=0, max_batch_size=4, prefill_chunk_size=256)
    for choice in range(3):
        engine.add(request(f"c{choice}", text(1, 70), max_tokens=4, **GREEDY))
    outputs = run(engine)
    assert [outputs[f"c{choice}"][-1].num_cached_tokens for choice in range(3)] == [0, 64, 64]
    assert engine.stats().num_prefix_query_tokens == 210
    assert engine.stats().num_prefix_hit_tokens == 128


def test_no_tenant_is_told_or_waits_for_what_another_computed(engines):
    engine = engines.make(window=0, max_batch_size=4, prefill_chunk_size=256)
    item = request("owner", text(1, 70), max_tokens=4, **GREEDY)
    beside, after, again = (
        structs.replace(item, request_id=name, tenant=tenant)
        for name, tenant in (("beside", "key-2"), ("after", ""), ("again", "key-1"))
    )
    engine.add(structs.replace(item, tenant="key-1"))
    engine.add(beside)
    engine.step()
    assert engine.stats().num_running == 2
    run(engine)
    engine.add(after)
    engine.add(again)
    outputs = run(engine)
    assert [outputs[name][-1].num_cached_tokens for name in ("after", "again")] == [0, 64]
    assert engine.stats().num_prefix_hit_tokens == 64
    assert token_ids(outputs["after"]) == token_ids(outputs["again"])


def test_without_prefix_cache_nothing_is_cached(engines):
    engine = engines.make(window=0, has_prefix_cache=False)
    for choice in range(2):
        engine.add(request(f"c{choice}", text(1, 70), max_tokens=4, **GREEDY))
    outputs = run(engine)
    assert [outputs[f"c{choice}"][-1].num_cached_tokens for choice in range(2)] == [0, 0]


def test_answers_are_cached_like_prompts(engines):
    engine = engines.make(window=0)
    engine.add(request("first", text(1, 30), max_tokens=40, **GREEDY))
    answer = token_ids(run(engine)["first"])
    engine.add(request("next", [*text(1, 30), *answer, 40, 41], max_tokens=1, **GREEDY))
    assert run(engine)["next"][-1].num_cached_tokens == 64


def test_drafts_never_reach_beyond_the_last_token(engines):
    prompt = text(1, 20)
    drafter = WrongDrafter({tuple(prompt): []}, engines.vocab_size)
    engine = engines.make([drafter], window=16)
    engine.add(request("r", prompt, max_tokens=6, **GREEDY))
    outputs = run(engine)["r"]
    assert len(token_ids(outputs)) == 6
    assert drafter.num_drafted == 4 + 3 + 2 + 1


def test_drafts_shrink_where_blocks_are_short(engines):
    prompts = [text(number, 14) for number in range(2)]
    drafter = WrongDrafter({tuple(prompt): [] for prompt in prompts}, engines.vocab_size)
    engine = engines.make([drafter], window=16, num_blocks=4, context_window_size=64, has_prefix_cache=False)
    for number, prompt in enumerate(prompts):
        engine.add(request(f"r{number}", prompt, max_tokens=16, **GREEDY))
    outputs = run(engine)
    assert [len(token_ids(outputs[f"r{number}"])) for number in range(2)] == [16, 16]
    assert engine.stats().num_preemptions == 0
