"""The suffix drafter inside an engine: which texts it keeps, how many, and to which tenants it proposes them."""

from __future__ import annotations

import random

import pytest
from msgspec import structs

from paceline.config import EngineConfig
from paceline.core import Request, SamplingParams
from paceline.drafters.suffix.drafter import SuffixDrafter
from paceline.engine import Engine
from tests.engine.engine_factory import request, run, token_ids

PROMPT = random.Random(5).choices(range(32, 127), k=24)


def ask(engine: Engine, name: str, tenant: str) -> tuple[list[int], int]:
    """Returns the answer's tokens, and how many of them a draft had guessed."""
    item: Request = request(name, PROMPT, max_tokens=60, temperature=0.9, seed=11, ignore_eos=True)
    engine.add(structs.replace(item, tenant=tenant))
    outputs = run(engine)[name]
    return token_ids(outputs), outputs[-1].speculation.num_accepted_tokens


def test_a_tenant_drafts_from_what_it_was_told_and_no_other_does(engines):
    drafter = SuffixDrafter(store_size=2000)
    engine = engines.make([drafter], window=7)
    answer, num_cold = ask(engine, "first", "a")
    assert ask(engine, "other", "b") == (answer, num_cold)
    assert ask(engine, "nameless", "") == (answer, num_cold)
    again, num_warm = ask(engine, "again", "a")
    assert again == answer
    assert num_warm > num_cold + 20
    assert drafter.store.tree("a").num_texts > drafter.store.tree("b").num_texts


def test_an_aborted_request_leaves_its_text_and_nothing_else(engines):
    drafter = SuffixDrafter(store_size=2000)
    engine = engines.make([drafter])
    engine.add(request("gone", PROMPT, max_tokens=60, temperature=0.0, ignore_eos=True))
    for _ in range(20):
        engine.step()
    engine.abort("gone")
    engine.add(request("next", [40], max_tokens=3, temperature=0.0, ignore_eos=True))
    run(engine)
    assert drafter._texts == {}
    assert 10 < drafter.store.tree("").num_tokens < 63
    assert drafter.store.tree("").find_contexts(PROMPT[:4])[-1:] != [(4, 1, [PROMPT[4]])]


@pytest.mark.parametrize(("settings", "is_kept"), [({}, True), ({"suffix_store_tokens": 0}, False)])
def test_the_settings_decide_whether_texts_are_kept(tiny_pair, tmp_path, monkeypatch, settings, is_kept):
    monkeypatch.setenv("PACELINE_CACHE_DIR", str(tmp_path))
    config = EngineConfig(
        model=str(tiny_pair.target), context_window_size=128, num_threads=1, speculation="fixed", **settings
    )
    engine = Engine(config)
    assert engine.drafter_names == ("suffix", "grammar")
    first = engine.generate(["the riders"], SamplingParams(max_tokens=80, temperature=0.0))[0]
    again = engine.generate(["the riders"], SamplingParams(max_tokens=80, temperature=0.0))[0]
    assert again.token_ids == first.token_ids
    assert (again.speculation.num_steps < first.speculation.num_steps) == is_kept
