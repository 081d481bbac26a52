"""Answers requests with an engine in this process, and records when each output came and where the time went.

The benchmarks share this module. Every request names its tenant, so each benchmark decides what the suffix drafter's
store contains for it.
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
    """The outputs of one request, and for each output the seconds since all requests were started."""

    outputs: list[Output] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)

    @property
    def token_ids(self) -> list[int]:
        """All tokens of the answer."""
        return [token_id for output in self.outputs for token_id in output.token_ids]

    @property
    def time_to_first_token_s(self) -> float:
        """The seconds until the first output, most of which is prefill."""
        return self.times_s[0]

    @property
    def decode_s(self) -> float:
        """The seconds from the first output to the last; 0 if there is only one."""
        return self.times_s[-1] - self.times_s[0]

    @property
    def num_later_tokens(self) -> int:
        """The number of tokens after the first output."""
        return sum(len(output.token_ids) for output in self.outputs[1:])

    @property
    def decode_tokens_per_s(self) -> float | None:
        """The tokens per second after the first output; None if there is only one output."""
        return self.num_later_tokens / self.decode_s if self.num_later_tokens else None


def answer_all(engine: Engine, requests: Sequence[Request]) -> list[TimedAnswer]:
    """Starts all requests together, blocks until the last one ends, and returns their answers in order.

    Raises PacelineError if a request fails.
    """
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
    """The seconds of steps that could draft (`step_s`), and what drafts cost in them.

    `wasted_s` is the time that went into drafts of which nothing was accepted; the time of their rows is taken from the
    cost model. `lost_s` is how much more drafters cost than they saved.
    """

    step_s: float = 0.0
    wasted_s: float = 0.0
    lost_s: float = 0.0

    @classmethod
    def of(cls, engine: Engine) -> StepTimes:
        """Returns the times since the engine's controller was created."""
        stats = engine.stats()
        return cls(stats.decoding_s, stats.wasted_s, stats.lost_s)

    def __sub__(self, before: StepTimes) -> StepTimes:
        return StepTimes(self.step_s - before.step_s, self.wasted_s - before.wasted_s, self.lost_s - before.lost_s)

    def __add__(self, other: StepTimes) -> StepTimes:
        return StepTimes(self.step_s + other.step_s, self.wasted_s + other.wasted_s, self.lost_s + other.lost_s)

    @property
    def wasted_share(self) -> float:
        """`wasted_s` as a share of the step time."""
        return self.wasted_s / self.step_s if self.step_s else 0.0

    @property
    def lost_share(self) -> float:
        """`lost_s` as a share of the step time."""
        return self.lost_s / self.step_s if self.step_s else 0.0
