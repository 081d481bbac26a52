"""Measures what the time of an engine's step is spent on, by timing the calls of the engine's parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from unittest import mock

from paceline import _native
from paceline.backends.protocol import KvStore, Model
from paceline.core import Batch, ModelConfig, Plan, Sequence, Verdict
from paceline.drafters.protocol import Drafter, Proposals
from paceline.engine.parts import EngineParts
from paceline.sampling.sampler import Logits

DRAFTING, FORWARD, SAMPLING = "drafting", "forward", "sampling"
SECTIONS = (DRAFTING, FORWARD, SAMPLING)

Result = TypeVar("Result")


@dataclass
class StepClock:
    """The seconds of each section since the last `take`. A section inside another one counts only for the outer one."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SECTIONS, 0.0))
    _is_inside: bool = False

    def time(self, name: str, call: Callable[..., Result], *arguments: object) -> Result:
        """Makes a call and adds its time to a section. Its own time counts as the engine's, so it does little."""
        if self._is_inside:
            return call(*arguments)
        self._is_inside = True
        start_s = time.perf_counter()
        try:
            return call(*arguments)
        finally:
            self.seconds[name] += time.perf_counter() - start_s
            self._is_inside = False

    def take(self) -> dict[str, float]:
        """Returns the seconds of the sections and sets them to zero."""
        taken, self.seconds = self.seconds, dict.fromkeys(SECTIONS, 0.0)
        return taken


@dataclass
class TimedModel:
    """A `Model` whose forward passes are timed."""

    model: Model
    clock: StepClock

    @property
    def config(self) -> ModelConfig:
        """The model's configuration."""
        return self.model.config

    @property
    def kv(self) -> KvStore:
        """The model's KV store."""
        return self.model.kv

    @property
    def max_positions(self) -> int:
        """The model's limit of positions."""
        return self.model.max_positions

    @property
    def weight_bytes(self) -> int:
        """The memory of the model's weights."""
        return self.model.weight_bytes

    def forward(self, batch: Batch) -> Logits:
        """Times a forward pass and returns its logits."""
        return self.clock.time(FORWARD, self.model.forward, batch)

    def first_layers(self, num_layers: int) -> Model:
        """Returns the model's first layers, timed too."""
        return TimedModel(self.model.first_layers(num_layers), self.clock)


class TimedDrafter(Drafter):
    """A `Drafter` whose calls are all timed, with the forward passes and the sampling of its model."""

    def __init__(self, drafter: Drafter, clock: StepClock) -> None:
        self.name, self.is_free = drafter.name, drafter.is_free
        self._drafter = drafter
        self._clock = clock

    def begin(self, sequence: Sequence) -> None:
        """Times the drafter's call."""
        self._clock.time(DRAFTING, self._drafter.begin, sequence)

    def num_missed(self, sequence: Sequence) -> int | None:
        """Times the drafter's call."""
        return self._clock.time(DRAFTING, self._drafter.num_missed, sequence)

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        """Times the drafter's call."""
        return self._clock.time(DRAFTING, self._drafter.propose, sequences, plans)

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:
        """Times the drafter's call."""
        self._clock.time(DRAFTING, self._drafter.observe, sequences, verdicts)

    def end(self, sequence: Sequence) -> None:
        """Times the drafter's call."""
        self._clock.time(DRAFTING, self._drafter.end, sequence)


def timed_parts(parts: EngineParts, clock: StepClock) -> EngineParts:
    """Returns the same parts with timed calls. Sampling is timed only within `timed_sampling`."""
    drafters = tuple(TimedDrafter(drafter, clock) for drafter in parts.drafters)
    return replace(parts, target=TimedModel(parts.target, clock), drafters=drafters)


@contextmanager
def timed_sampling(clock: StepClock) -> Iterator[None]:
    """Times only the native sampling call. The Python code around it counts as Python."""
    original: Callable[..., Any] = _native.sample_rows

    def sample_rows(*arguments: object) -> Any:  # noqa: ANN401
        return clock.time(SAMPLING, original, *arguments)

    with mock.patch.object(_native, "sample_rows", sample_rows):
        yield
