"""`StatusBoard`: what is known of engines now and what happened last, told to whoever subscribes (metrics are one).

Those who see something happen publish an event; they do not know who listens.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from paceline.core import EngineStats

_NUM_KEPT_EVENTS = 256


@dataclass(frozen=True, slots=True)
class EngineAdded:
    """There is an engine of this name for this model, which may not run yet."""

    engine: str
    model_name: str


@dataclass(frozen=True, slots=True)
class EngineReady:
    """The engine has loaded its models; `epoch` counts its restarts."""

    engine: str
    epoch: int


@dataclass(frozen=True, slots=True)
class EngineDown:
    """The engine ended, or was told to; its counters will restart from 0."""

    engine: str


@dataclass(frozen=True, slots=True)
class EngineRestarting:
    """The engine had been ready, ended by itself for this reason, and is started again after `delay_s`."""

    engine: str
    reason: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class StatsReported:
    """The running engine sent a snapshot."""

    engine: str
    stats: EngineStats


@dataclass(frozen=True, slots=True)
class PromptSubmitted:
    """The engine was handed a request with a prompt of so many tokens."""

    engine: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class TokensReceived:
    """Output tokens of one request came, `wait_s` after its arrival if they are the first, else after those before."""

    engine: str
    num_tokens: int
    wait_s: float
    are_first: bool


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """A request ended `duration_s` after its arrival: `stop`, `length`, `abort` (its client left) or `error`."""

    engine: str
    reason: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class HttpAnswered:
    """An HTTP request was answered; `method` and `route` (a path's pattern) are never a client's own text."""

    method: str
    route: str
    status: int
    duration_s: float


Event = (
    EngineAdded
    | EngineReady
    | EngineDown
    | EngineRestarting
    | StatsReported
    | PromptSubmitted
    | TokensReceived
    | RequestEnded
    | HttpAnswered
)
KeptEvent = EngineReady | EngineDown | EngineRestarting


@dataclass(slots=True)
class EngineStatus:
    """One engine as it was heard of last. `stats` is None while it does not run."""

    model_name: str
    is_up: bool = False
    epoch: int = 0
    stats: EngineStats | None = None


class StatusBoard:
    """The status of every engine by name, and the last events of their lives with their Unix times."""

    def __init__(self) -> None:
        self.engines: dict[str, EngineStatus] = {}
        self.events: deque[tuple[float, KeptEvent]] = deque(maxlen=_NUM_KEPT_EVENTS)
        self._listeners: list[Callable[[Event], None]] = []

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        """Calls `listener` with every event from now on, in the thread that publishes it."""
        self._listeners.append(listener)

    def publish(self, event: Event) -> None:
        """Takes an event down and tells all subscribers."""
        self._record(event)
        for listener in self._listeners:
            listener(event)

    def _record(self, event: Event) -> None:
        match event:
            case EngineAdded():
                self.engines[event.engine] = EngineStatus(event.model_name)
            case EngineReady():
                status = self.engines[event.engine]
                status.is_up, status.epoch = True, event.epoch
            case EngineDown():
                status = self.engines[event.engine]
                status.is_up, status.stats = False, None
            case StatsReported():
                self.engines[event.engine].stats = event.stats
        if isinstance(event, KeptEvent):
            self.events.append((time.time(), event))
