"""Where the time of an engine's step goes: the parts of an engine, each with its calls timed."""

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
    """Seconds of each section since the last `take`. A section inside another counts for the outer one only."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SECTIONS, 0.0))
    _is_inside: bool = False

    def time(self, name: str, call: Callable[..., Result], *arguments: object) -> Result:
        """Calls and times as a section; little of its own, since what it takes would count as the engine's."""
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
        """The sections' seconds, which start again at zero."""
        taken, self.seconds = self.seconds, dict.fromkeys(SECTIONS, 0.0)
        return taken


@dataclass
class TimedModel:
    """A `Model` whose forward passes are timed."""

    model: Model
    clock: StepClock

    @property
    def config(self) -> ModelConfig:
        """The model's."""
        return self.model.config

    @property
    def kv(self) -> KvStore:
        """The model's."""
        return self.model.kv

    @property
    def max_positions(self) -> int:
        """The model's."""
        return self.model.max_positions

    @property
    def weight_bytes(self) -> int:
        """The model's."""
        return self.model.weight_bytes

    def forward(self, batch: Batch) -> Logits:
        """The model's."""
        return self.clock.time(FORWARD, self.model.forward, batch)

    def first_layers(self, num_layers: int) -> Model:
        """The model's, timed too."""
        return TimedModel(self.model.first_layers(num_layers), self.clock)


class TimedDrafter(Drafter):
    """A `Drafter` all of whose calls are timed, forward passes and sampling of a draft model included."""

    def __init__(self, drafter: Drafter, clock: StepClock) -> None:
        self.name, self.is_free = drafter.name, drafter.is_free
        self._drafter = drafter
        self._clock = clock

    def begin(self, sequence: Sequence) -> None:
        """The drafter's."""
        self._clock.time(DRAFTING, self._drafter.begin, sequence)

    def num_missed(self, sequence: Sequence) -> int | None:
        """The drafter's."""
        return self._clock.time(DRAFTING, self._drafter.num_missed, sequence)

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        """The drafter's."""
        return self._clock.time(DRAFTING, self._drafter.propose, sequences, plans)

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:
        """The drafter's."""
        self._clock.time(DRAFTING, self._drafter.observe, sequences, verdicts)

    def end(self, sequence: Sequence) -> None:
        """The drafter's."""
        self._clock.time(DRAFTING, self._drafter.end, sequence)


def timed_parts(parts: EngineParts, clock: StepClock) -> EngineParts:
    """The same parts, timed; sampling is timed within `timed_sampling`."""
    drafters = tuple(TimedDrafter(drafter, clock) for drafter in parts.drafters)
    return replace(parts, target=TimedModel(parts.target, clock), drafters=drafters)


@contextmanager
def timed_sampling(clock: StepClock) -> Iterator[None]:
    """Times the native sampling call itself, so that what Python does around it counts as Python."""
    original: Callable[..., Any] = _native.sample_rows

    def sample_rows(*arguments: object) -> Any:  # noqa: ANN401
        return clock.time(SAMPLING, original, *arguments)

    with mock.patch.object(_native, "sample_rows", sample_rows):
        yield
