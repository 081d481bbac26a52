"""Random lives of an engine, with any drafter, window, chunk size and number of blocks; requests join, are aborted and
are resumed after restarts at any time.

Every seed is one life. Each request that is not aborted must give the answer that it gives when it runs alone.
"""

from __future__ import annotations

import random

import pytest

from paceline.core import FinishReason, Request
from paceline.drafters.ngram import NgramDrafter
from tests.engine.engine_factory import EngineFactory, answer, request, run
from tests.engine.scripted_drafters import PartlyRightDrafter, RightDrafter, TreeDrafter, WrongDrafter
from tests.support.tiny_gguf import write_tiny_pair

CONTEXT_SIZE = 112
SCRIPTED = (WrongDrafter, RightDrafter, PartlyRightDrafter, TreeDrafter)


def random_request(generator: random.Random, name: str, prompts: list[list[int]]) -> Request:
    sampling: dict[str, object] = {"max_tokens": generator.randint(1, 40), "num_logprobs": generator.choice([0, 3])}
    sampling |= generator.choice([{"temperature": 0.0}, {"temperature": 0.9, "seed": generator.randrange(1 << 60)}])
    sampling |= generator.choice([{}, {}, {"top_k": 5}, {"presence_penalty": 0.5}, {"min_tokens": 5}])
    sampling["min_tokens"] = min(sampling.get("min_tokens", 0), sampling["max_tokens"])
    sampling |= generator.choice([{}, {"stop": ("e", "th")}, {"stop": (" t",)}, {"stop_token_ids": (101, 116)}])
    return request(name, generator.choice(prompts), **sampling)


class Life:
    """One engine with its requests, and the answer that each of them must give."""

    def __init__(self, engines, seed: int) -> None:
        self.generator = generator = random.Random(seed)
        shared = [generator.randrange(32, 127) for _ in range(48)]
        prompts = [[*shared[: generator.randint(1, 48)], generator.randrange(32, 127)] for _ in range(4)]
        self.requests = {f"r{i}": random_request(generator, f"r{i}", prompts) for i in range(8)}
        alone = engines.make(window=0, max_batch_size=1, context_window_size=CONTEXT_SIZE, has_prefix_cache=False)
        for item in self.requests.values():
            alone.add(item)
        self.answers = {name: answer(outputs) for name, outputs in run(alone).items()}
        self.engine = self.make_engine(engines)
        self.outputs: dict[str, list[object]] = {name: [] for name in self.requests}

    def make_engine(self, engines):
        """Returns an engine with random settings and drafters.

        Scripted drafters know one answer for each prompt, so they are right for only some of the requests.
        """
        generator = self.generator
        futures = {tuple(r.prompt_token_ids): list(self.answers[name][0]) for name, r in self.requests.items()}
        scripted = generator.choice(SCRIPTED)(futures, engines.vocab_size, generator.randrange(1000))
        drafters = generator.choice([[scripted], [NgramDrafter()], [scripted, NgramDrafter()]])
        return engines.make(
            drafters,
            window=generator.choice([1, 3, 7, 16]),
            has_draft_model=generator.random() < 0.3,
            shared_layers=generator.choice([0, 0, 1, 2]),
            num_blocks=generator.choice([7, 9, 14, 40]),
            context_window_size=CONTEXT_SIZE,
            prefill_chunk_size=generator.choice([3, 16, 100]),
            max_batch_size=generator.choice([1, 2, 4, 8]),
            has_prefix_cache=generator.random() < 0.8,
        )

    def live(self) -> None:
        """Adds requests, steps and aborts until all requests have ended."""
        names = list(self.requests)
        self.generator.shuffle(names)
        while names or self.engine.has_unfinished:
            if names and self.generator.random() < 0.5:
                self.engine.add(self.requests[names.pop()])
            if self.generator.random() < 0.03:
                self.engine.abort(self.generator.choice(list(self.requests)))
            for output in self.engine.step():
                self.outputs[output.request_id].append(output)
            self.engine.check_integrity()


@pytest.fixture(scope="module", params=["qwen2", "gemma3"])
def any_engines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> EngineFactory:
    """Returns engines of a model with full attention, and of one with sliding windows."""
    return EngineFactory(write_tiny_pair(tmp_path_factory.mktemp(request.param), request.param, "Q4_K"))


@pytest.mark.parametrize("seed", range(10))
def test_a_random_life_says_what_plain_decoding_says(any_engines, seed):
    life = Life(any_engines, seed)
    life.live()
    ended = {name: outputs[-1].finish_reason for name, outputs in life.outputs.items()}
    for name, outputs in life.outputs.items():
        if ended[name] is not FinishReason.ABORT:
            assert answer(outputs) == life.answers[name]
        else:
            tokens = [token for output in outputs for token in output.token_ids]
            assert tokens == life.answers[name][0][: len(tokens)]
    assert None not in ended.values()
    stats = life.engine.stats()
    assert stats.num_free_blocks == stats.num_blocks


@pytest.mark.parametrize("seed", range(100, 104))
def test_a_random_life_goes_on_after_a_restart(any_engines, seed):
    life = Life(any_engines, seed)
    for item in life.requests.values():
        life.engine.add(item)
    for _ in range(life.generator.randint(3, 40)):
        for output in life.engine.step():
            life.outputs[output.request_id].append(output)
    restarted = life.make_engine(any_engines)
    for name, item in life.requests.items():
        outputs = life.outputs[name]
        if not outputs or outputs[-1].finish_reason is None:
            tokens = [token for output in outputs for token in output.token_ids]
            resumed = Request(
                request_id=name,
                prompt_token_ids=item.prompt_token_ids,
                sampling=item.sampling,
                resumed_token_ids=tokens,
            )
            restarted.add(resumed)
    for name, outputs in run(restarted).items():
        life.outputs[name] += outputs
    assert {name: answer(outputs) for name, outputs in life.outputs.items()} == life.answers
