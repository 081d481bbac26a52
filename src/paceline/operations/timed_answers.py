"""Answers requests with an engine in process and notes when each output came, and where the engine's time went.

The benchmarks share it. Every request names its tenant, so that what the suffix drafter's store holds for it is the
benchmark's choice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.core import Output, Request
from paceline.core.errors import PacelineError
from paceline.engine import Engine


@dataclass(slots=True)
class TimedAnswer:
    """One request's outputs, and the seconds from the start of all requests to each of them."""

    outputs: list[Output] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)

    @property
    def token_ids(self) -> list[int]:
        """All of the answer."""
        return [token_id for output in self.outputs for token_id in output.token_ids]

    @property
    def time_to_first_token_s(self) -> float:
        """Reading the prompt, mostly."""
        return self.times_s[0]

    @property
    def decode_s(self) -> float:
        """From the first output to the last; 0 where they are one."""
        return self.times_s[-1] - self.times_s[0]

    @property
    def num_later_tokens(self) -> int:
        """Tokens after the first output."""
        return sum(len(output.token_ids) for output in self.outputs[1:])

    @property
    def decode_tokens_per_s(self) -> float | None:
        """None for a single output."""
        return self.num_later_tokens / self.decode_s if self.num_later_tokens else None


def answer_all(engine: Engine, requests: Sequence[Request]) -> list[TimedAnswer]:
    """Starts all requests together and blocks until the last one ends. Raises PacelineError where one fails."""
    answers = {request.request_id: TimedAnswer() for request in requests}
    start_s = time.perf_counter()
    for request in requests:
        engine.add(request)
    while engine.has_unfinished:
        outputs = engine.step()
        now_s = time.perf_counter() - start_s
        for output in outputs:
            if output.error is not None:
                raise PacelineError(f"request {output.request_id} failed: {output.error}")
            answers[output.request_id].outputs.append(output)
            answers[output.request_id].times_s.append(now_s)
    return list(answers.values())


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of decoding steps, and of these what went into drafts of which nothing was accepted (`wasted_s`; the
    part of rows is the cost model's) and by how much drafters cost more than they saved (`lost_s`)."""

    step_s: float = 0.0
    wasted_s: float = 0.0
    lost_s: float = 0.0

    @classmethod
    def of(cls, engine: Engine) -> StepTimes:
        """Since the engine's controller was made."""
        stats = engine.stats()
        return cls(stats.decoding_s, stats.wasted_s, stats.lost_s)

    def __sub__(self, before: StepTimes) -> StepTimes:
        return StepTimes(self.step_s - before.step_s, self.wasted_s - before.wasted_s, self.lost_s - before.lost_s)

    def __add__(self, other: StepTimes) -> StepTimes:
        return StepTimes(self.step_s + other.step_s, self.wasted_s + other.wasted_s, self.lost_s + other.lost_s)

    @property
    def wasted_share(self) -> float:
        """As a share of the step time."""
        return self.wasted_s / self.step_s if self.step_s else 0.0

    @property
    def lost_share(self) -> float:
        """As a share of the step time."""
        return self.lost_s / self.step_s if self.step_s else 0.0
