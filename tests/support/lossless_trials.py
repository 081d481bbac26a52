"""Trials of the promise on real models. Requests join, draft and are aborted; their answers are compared with those of
plain decoding: tokens, the bits of their log-probabilities, and hashes of the whole rows of logits behind them.

    runner = Runner(pair, EngineConfig(model="real", num_speculative_tokens=MAX_WINDOW))
    expected = runner.plain_answers(prompts, num_tokens=256)
    result = run_trial(runner, ("ngram",), "sampled", expected)
    result.check()
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from paceline import Engine, EngineConfig
from paceline.backends.protocol import BLOCK_SIZE
from paceline.core import FinishReason, Output, Request, SamplingParams, SpeculationMode, SpeculationParams
from paceline.drafters.protocol import Drafter
from paceline.engine.assembly import LoadedPair, build_parts
from paceline.operations.verify import CommittedToken, RecordingVerifier

SAMPLINGS = {"greedy": {"temperature": 0.0}, "sampled": {"temperature": 0.8, "top_p": 0.95}}
MAX_WINDOW = 16
JOIN_PROBABILITY = 0.3


@dataclass(frozen=True)
class Answer:
    """The part of an answer that must not depend on speculation."""

    tokens: list[CommittedToken]
    text: str
    finish_reason: FinishReason | None

    @property
    def token_ids(self) -> list[int]:
        return [token.token_id for token in self.tokens]


@dataclass(frozen=True)
class Expected:
    """The answers of plain decoding to each prompt, by the name of the sampling."""

    prompts: list[list[int]]
    num_tokens: int
    answers: dict[str, list[Answer]]

    def first(self, count: int) -> Expected:
        """Returns the same for the first `count` prompts."""
        answers = {sampling: answers[:count] for sampling, answers in self.answers.items()}
        return Expected(self.prompts[:count], self.num_tokens, answers)


@dataclass
class Run:
    """An engine, and all of its outputs so far."""

    engine: Engine
    verifier: RecordingVerifier
    outputs: dict[str, list[Output]] = field(default_factory=dict)

    def add(self, request: Request) -> None:
        self.outputs[request.request_id] = []
        self.engine.add(request)

    def step(self) -> None:
        for output in self.engine.step():
            assert output.error is None
            self.outputs[output.request_id].append(output)
        self.engine.check_integrity()

    def finish(self) -> None:
        while self.engine.has_unfinished:
            self.step()

    def num_tokens(self, request_id: str) -> int:
        return sum(len(output.token_ids) for output in self.outputs[request_id])

    def answer(self, request_id: str) -> Answer:
        outputs = self.outputs[request_id]
        text = "".join(output.text for output in outputs)
        return Answer(list(self._tokens(outputs)), text, outputs[-1].finish_reason)

    def _tokens(self, outputs: Iterable[Output]) -> Iterator[CommittedToken]:
        position = 0
        for output in outputs:
            assert output.first_token_index == position
            for token_id, entry in zip(output.token_ids, output.logprobs or (), strict=True):
                assert entry.token_id == token_id
                (bits,) = struct.unpack("<I", struct.pack("<f", entry.logprob))
                yield CommittedToken(token_id, bits, self.verifier.row_hashes[output.request_id, position])
                position += 1


@dataclass(frozen=True)
class Runner:
    """Makes engines over a pair that is loaded once. A new engine empties the KV of the engine before."""

    pair: LoadedPair
    config: EngineConfig

    def run(
        self,
        drafters: Sequence[str | Drafter],
        *,
        num_blocks: int | None = None,
        **settings: object,
    ) -> Run:
        """Returns a new engine with these drafters, given by name or as objects.

        `num_blocks` None means enough blocks for a full batch.
        """
        config = self.config.model_copy(update=settings)
        enough = config.max_batch_size * -(-config.context_window_size // BLOCK_SIZE)
        names = tuple(drafter for drafter in drafters if isinstance(drafter, str))
        own = tuple(drafter for drafter in drafters if not isinstance(drafter, str))
        parts = build_parts(self.pair, config, names, num_blocks or enough)
        verifier = RecordingVerifier(self.pair.backend.sampler, has_row_hashes=True)
        parts = replace(parts, verifier=verifier, drafters=(*own, *parts.drafters))
        return Run(Engine.from_parts(config, parts), verifier)

    def plain_answers(self, prompts: list[list[int]], num_tokens: int) -> Expected:
        """Answers all prompts, greedily and sampled, in full batches without drafters and without a prefix cache."""
        run = self.run((), num_speculative_tokens=0, has_prefix_cache=False)
        names = {sampling: [f"{sampling} {i}" for i in range(len(prompts))] for sampling in SAMPLINGS}
        for sampling in SAMPLINGS:
            for index, name in enumerate(names[sampling]):
                run.add(request(name, prompts[index], sampling, index, num_tokens))
        run.finish()
        assert run.engine.stats().num_draft_tokens == 0
        answers = {sampling: [run.answer(name) for name in names[sampling]] for sampling in SAMPLINGS}
        return Expected(prompts, num_tokens, answers)


def request(
    name: str, prompt: list[int], sampling: str, index: int, num_tokens: int, max_window: int | None = None
) -> Request:
    """Returns a request for exactly `num_tokens` tokens. Its seed depends on `index`, the prompt's number. `max_window`
    None switches speculation off."""
    mode = SpeculationMode.OFF if max_window is None else SpeculationMode.AUTO
    return Request(
        request_id=name,
        prompt_token_ids=prompt,
        sampling=SamplingParams(
            **SAMPLINGS[sampling], seed=1000 + index, max_tokens=num_tokens, ignore_eos=True, num_logprobs=0
        ),
        speculation=SpeculationParams(mode=mode, max_window=max_window),
    )


@dataclass(frozen=True)
class Passerby:
    """A request that is aborted once it has `num_tokens_before` tokens. If that is 0, it is aborted while it waits or
    while its prompt is read."""

    request: Request
    sampling: str
    prompt_index: int
    num_tokens_before: int


@dataclass
class TrialResult:
    """How much was compared and how often it differed, and the drafted and accepted tokens by window and by drafter."""

    name: str
    num_steps: int = 0
    num_tokens: int = 0
    num_aborted: int = 0
    num_aborted_tokens: int = 0
    num_different_tokens: int = 0
    num_different_logprobs: int = 0
    num_different_rows: int = 0
    num_different_texts: int = 0
    drafted_by_window: Counter[int] = field(default_factory=Counter)
    accepted_by_window: Counter[int] = field(default_factory=Counter)
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    longest_path: int = 0

    def compare(self, expected: Sequence[CommittedToken], actual: Sequence[CommittedToken]) -> None:
        """Counts the positions that differ; a missing token differs in all respects."""
        for left, right in zip_longest(expected, actual):
            self.num_different_tokens += left is None or right is None or left.token_id != right.token_id
            self.num_different_logprobs += left is None or right is None or left.logprob_bits != right.logprob_bits
            self.num_different_rows += left is None or right is None or left.row_hash != right.row_hash

    def add_speculation(self, window: int, outputs: list[Output]) -> None:
        """Counts the drafted tokens of one request; checks that no step committed more than window + 1 tokens."""
        longest = max(len(output.token_ids) for output in outputs)
        assert longest <= window + 1
        self.longest_path = max(self.longest_path, longest - 1)
        speculation = outputs[-1].speculation
        self.drafted_by_window[window] += speculation.num_draft_tokens
        self.accepted_by_window[window] += speculation.num_accepted_tokens
        for drafter, (drafted, accepted) in speculation.by_drafter.items():
            self.drafted[drafter] += drafted
            self.accepted[drafter] += accepted

    def check(self) -> None:
        """Checks that nothing differs, and that some aborted requests had tokens."""
        assert self.num_aborted_tokens > 0
        differences = (
            self.num_different_tokens,
            self.num_different_logprobs,
            self.num_different_rows,
            self.num_different_texts,
        )
        assert differences == (0, 0, 0, 0), self.summary

    def check_acceptance(self, num_classes: int) -> None:
        """Divides the windows into `num_classes` equal classes; checks that each class had tokens accepted, and that
        some drafted tokens were rejected."""
        size = MAX_WINDOW // num_classes
        for first in range(1, MAX_WINDOW + 1, size):
            num_accepted = sum(self.accepted_by_window[window] for window in range(first, first + size))
            assert num_accepted > 0, (first, self.summary)
        assert self.accepted.total() < self.drafted.total(), self.summary

    @property
    def summary(self) -> str:
        acceptance = ", ".join(
            f"{drafter} {self.accepted[drafter]} of {drafted} ({self.accepted[drafter] / drafted:.3f})"
            for drafter, drafted in self.drafted.items()
        )
        windows = " ".join(f"{w}:{self.accepted_by_window[w]}/{self.drafted_by_window[w]}" for w in range(1, 17))
        return (
            f"{self.name}: {self.num_tokens} tokens in {self.num_steps} steps, {self.num_aborted} aborted after "
            f"{self.num_aborted_tokens} tokens; different: {self.num_different_tokens} tokens, "
            f"{self.num_different_logprobs} log-probabilities, {self.num_different_rows} rows, "
            f"{self.num_different_texts} texts; accepted: {acceptance}; longest path {self.longest_path}; "
            f"by window {windows}"
        )


class Trial:
    """Runs all prompts with one kind of sampling and with windows 1 to 16 in turn. The requests join at random steps.
    Among them are passers-by with the other kind of sampling, which are aborted before their end."""

    def __init__(self, run: Run, sampling: str, expected: Expected, name: str) -> None:
        self.run = run
        self.sampling = sampling
        self.expected = expected
        self.random = random.Random(name)
        self.result = TrialResult(name)
        self.windows = {str(i): 1 + i % MAX_WINDOW for i in range(len(expected.prompts))}
        requests = [
            request(name, expected.prompts[i], sampling, i, expected.num_tokens, window)
            for i, (name, window) in enumerate(self.windows.items())
        ]
        self.passersby = {item.request.request_id: item for item in self._make_passersby()}
        self.waiting = [*requests, *(item.request for item in self.passersby.values())]
        self.random.shuffle(self.waiting)

    def _make_passersby(self) -> Iterator[Passerby]:
        expected = self.expected
        (other,) = SAMPLINGS.keys() - {self.sampling}
        for number in range(-(-len(expected.prompts) // 4)):
            index = self.random.randrange(len(expected.prompts))
            window = self.random.choice([None, 1, 3, 7, 16])
            num_tokens = expected.num_tokens + MAX_WINDOW + 1
            item = request(f"passerby {number}", expected.prompts[index], other, index, num_tokens, window)
            num_tokens_before = self.random.randint(1, expected.num_tokens // 2) if number > 0 else 0
            yield Passerby(item, other, index, num_tokens_before)

    def live(self) -> TrialResult:
        engine = self.run.engine
        while self.waiting or engine.has_unfinished:
            if self.waiting and (self.random.random() < JOIN_PROBABILITY or not engine.has_unfinished):
                self.run.add(self.waiting.pop())
            self.run.step()
            self._abort()
        assert engine.stats().num_free_blocks == engine.stats().num_blocks
        self._judge()
        return self.result

    def _abort(self) -> None:
        for name, item in self.passersby.items():
            has_begun = name in self.run.outputs
            if has_begun and self.run.num_tokens(name) >= item.num_tokens_before:
                self.run.engine.abort(name)

    def _judge(self) -> None:
        result, run = self.result, self.run
        result.num_steps = run.engine.stats().num_steps
        for name, window in self.windows.items():
            expected, actual = self.expected.answers[self.sampling][int(name)], run.answer(name)
            result.num_tokens += len(actual.tokens)
            result.compare(expected.tokens, actual.tokens)
            result.num_different_texts += (expected.text, expected.finish_reason) != (actual.text, actual.finish_reason)
            result.add_speculation(window, run.outputs[name])
        for name, item in self.passersby.items():
            actual = run.answer(name)
            assert actual.finish_reason is FinishReason.ABORT
            expected_tokens = self.expected.answers[item.sampling][item.prompt_index].tokens
            num_common = min(len(actual.tokens), self.expected.num_tokens)
            result.compare(expected_tokens[:num_common], actual.tokens[:num_common])
            result.num_aborted += 1
            result.num_aborted_tokens += len(actual.tokens)


def run_trial(
    runner: Runner, drafters: Sequence[str | Drafter], sampling: str, expected: Expected, **settings: object
) -> TrialResult:
    """Runs one trial; raises AssertionError if a drafter failed and was switched off."""
    run = runner.run(drafters, **settings)
    names = run.engine.drafter_names
    result = Trial(run, sampling, expected, f"{'+'.join(names)} {sampling}").live()
    assert run.engine.drafter_names == names
    return result
