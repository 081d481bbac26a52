"""Compares automatic mode with plain decoding for several answers at a time, in alternating order.

One engine does both. The target reads the prompts before the clock starts, so all streams decode from the first step
on. The drafters' prefill is in the time. Every answer of every run has a tenant of its own, so none finds its text in
the suffix drafter's store. Nothing here prints.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec import structs

from paceline.config import EngineConfig
from paceline.core import Request, SamplingParams, SpeculationMode, SpeculationParams
from paceline.core.errors import UsageError
from paceline.drafters.selection import resolve_pair
from paceline.engine import Engine
from paceline.engine.assembly import LoadedPair, build_parts, load_pair, measure_costs
from paceline.engine.capacity import context_window_size, num_blocks_for
from paceline.operations.timed_answers import StepTimes, answer_all
from paceline.operations.workload import AUTO, PLAIN, Task, mix, paired_modes

NUM_STREAMS = (1, 2, 4, 8, 16, 32)
_OFF = SpeculationParams(mode=SpeculationMode.OFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsRun:
    """One run of `num_streams` answers that start together. `num_tokens` and `seconds` are for all answers together;
    towards the end fewer of them run."""

    num_streams: int
    pair: int
    mode: str
    num_tokens: int
    seconds: float
    num_steps: int
    wasted_share: float
    lost_share: float
    is_text_equal: bool

    @property
    def tokens_per_s(self) -> float:
        """The speed of all streams together."""
        return self.num_tokens / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossoverPoint:
    """The pairs with one number of streams: medians of the speeds, and of the ratios of automatic to plain."""

    num_streams: int
    num_pairs: int
    plain_tokens_per_s: float
    auto_tokens_per_s: float
    ratio: float
    wasted_share: float
    lost_share: float
    is_text_equal: bool


class Crossover:
    """An engine with room for the most streams, and the requests for it."""

    def __init__(
        self,
        config: EngineConfig,
        tasks: Sequence[Task],
        *,
        num_streams: Sequence[int] = NUM_STREAMS,
        max_tokens: int | None = None,
        temperature: float = 0.0,
    ) -> None:
        """Loads the models. Raises UsageError if no drafter runs, and what loading models raises."""
        if config.speculation != "auto" or not resolve_pair(config).drafter_names:
            raise UsageError("there is nothing to compare without drafters; leave --drafters and --speculation away")
        self.pair = load_pair(config)
        self._num_streams = num_streams
        self._requests = [
            Request(
                request_id=task.id,
                prompt_token_ids=self.pair.target.tokenizer.encode_chat(task.messages),
                sampling=task.sampling(max_tokens=max_tokens, temperature=temperature),
            )
            for task in mix(tasks, max(num_streams))
        ]
        self._engine = _build_engine(config, self.pair, self._requests)

    def measure(self, num_pairs: int) -> Iterator[StreamsRun]:
        """Yields `num_pairs` pairs of runs for each number of streams."""
        for num_streams in self._num_streams:
            texts: list[list[int]] | None = None
            for pair in range(num_pairs):
                for mode in paired_modes(pair):
                    texts, run = self._run(num_streams, pair, mode, texts)
                    yield run

    def _run(
        self, num_streams: int, pair: int, mode: str, expected: list[list[int]] | None
    ) -> tuple[list[list[int]], StreamsRun]:
        """Makes one run. Returns the texts that later runs must equal, and the run."""
        requests = [
            _copy(request, f"{num_streams} {pair} {mode} {i}", SpeculationParams() if mode == AUTO else _OFF)
            for i, request in enumerate(self._requests[:num_streams])
        ]
        answer_all(self._engine, [_reading(request) for request in requests])
        before, steps_before = StepTimes.of(self._engine), self._engine.stats().num_steps
        answers = answer_all(self._engine, requests)
        times = StepTimes.of(self._engine) - before
        texts = [answer.token_ids for answer in answers]
        return expected or texts, StreamsRun(
            num_streams=num_streams,
            pair=pair,
            mode=mode,
            num_tokens=sum(map(len, texts)),
            seconds=max(answer.times_s[-1] for answer in answers),
            num_steps=self._engine.stats().num_steps - steps_before,
            wasted_share=times.wasted_share,
            lost_share=times.lost_share,
            is_text_equal=expected in (None, texts),
        )


def _build_engine(config: EngineConfig, pair: LoadedPair, requests: Sequence[Request]) -> Engine:
    """Returns an engine in automatic mode, with KV memory for all requests at once."""
    lengths = [len(r.prompt_token_ids) + (r.sampling.max_tokens or 0) + config.num_speculative_tokens for r in requests]
    needed = sum(num_blocks_for(length) + 1 for length in lengths)
    num_blocks = max(needed, num_blocks_for(context_window_size(config, pair.target.model.config)))
    config = config.model_copy(update={"max_batch_size": len(requests), "has_prefix_cache": True})
    parts = build_parts(pair, config, pair.drafter_names, num_blocks, measure_costs(pair, config))
    return Engine.from_parts(config, parts)


def _copy(request: Request, name: str, speculation: SpeculationParams) -> Request:
    """Returns the same request under another name, for a tenant of that name."""
    return Request(
        request_id=name,
        prompt_token_ids=request.prompt_token_ids,
        sampling=request.sampling,
        speculation=speculation,
        tenant=name,
    )


def _reading(request: Request) -> Request:
    """Returns a request that puts the prompt into the tenant's prefix cache, and no text into a drafter's store."""
    sampling = SamplingParams(max_tokens=1, temperature=0.0)
    return structs.replace(request, request_id=f"reading {request.request_id}", sampling=sampling, speculation=_OFF)


def crossover_points(runs: Sequence[StreamsRun]) -> list[CrossoverPoint]:
    """Returns one point for each number of streams, in order of appearance."""
    return [
        _point([run for run in runs if run.num_streams == num_streams])
        for num_streams in dict.fromkeys(run.num_streams for run in runs)
    ]


def _point(runs: list[StreamsRun]) -> CrossoverPoint:
    plain, auto = ({run.pair: run for run in runs if run.mode == mode} for mode in (PLAIN, AUTO))
    return CrossoverPoint(
        num_streams=runs[0].num_streams,
        num_pairs=len(plain),
        plain_tokens_per_s=statistics.median(run.tokens_per_s for run in plain.values()),
        auto_tokens_per_s=statistics.median(run.tokens_per_s for run in auto.values()),
        ratio=statistics.median(auto[pair].tokens_per_s / plain[pair].tokens_per_s for pair in plain),
        wasted_share=statistics.fmean(run.wasted_share for run in auto.values()),
        lost_share=statistics.fmean(run.lost_share for run in auto.values()),
        is_text_equal=all(run.is_text_equal for run in runs),
    )
