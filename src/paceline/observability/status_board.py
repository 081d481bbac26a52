"""`StatusBoard`: keeps the status and the latest events of all engines, and passes events on to subscribers.

The gateway's parts publish events here without knowing the subscribers; the metrics are one of them.
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
    """The server has an engine with this name and model. It need not run yet."""

    engine: str
    model_name: str


@dataclass(frozen=True, slots=True)
class EngineReady:
    """The engine has loaded its models; `epoch` counts its restarts."""

    engine: str
    epoch: int


@dataclass(frozen=True, slots=True)
class EngineDown:
    """The engine ended, or the server is ending; the engine's counters will restart from 0."""

    engine: str


@dataclass(frozen=True, slots=True)
class EngineRestarting:
    """The engine ended by itself for this reason and will be started again after `delay_s`."""

    engine: str
    reason: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class StatsReported:
    """The engine sent a snapshot of its state and counters."""

    engine: str
    stats: EngineStats


@dataclass(frozen=True, slots=True)
class PromptSubmitted:
    """A request with a prompt of `num_tokens` was sent to the engine."""

    engine: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class TokensReceived:
    """Output tokens of one request arrived. `wait_s` counts from the tokens before them, or from the request's arrival
    if they are the first."""

    engine: str
    num_tokens: int
    wait_s: float
    are_first: bool


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """A request ended `duration_s` after its arrival. `reason` is `stop`, `length`, `abort` (its client disconnected)
    or `error`."""

    engine: str
    reason: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class HttpAnswered:
    """An HTTP request or a gRPC call was answered. `method` and `route` (the path's pattern) never contain a client's
    own text. A gRPC call has the method `GRPC`, its full name as the route, and the status that HTTP would have."""

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
    """The latest status of one engine. `stats` is its latest snapshot; None if it does not run or has sent none yet."""

    model_name: str
    is_up: bool = False
    epoch: int = 0
    stats: EngineStats | None = None


class StatusBoard:
    """The status of every engine by name, and the latest starts and ends of engines with their Unix times."""

    def __init__(self) -> None:
        self.engines: dict[str, EngineStatus] = {}
        self.events: deque[tuple[float, KeptEvent]] = deque(maxlen=_NUM_KEPT_EVENTS)
        self._listeners: list[Callable[[Event], None]] = []

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        """Calls `listener` with every event from now on, in the thread that publishes the event."""
        self._listeners.append(listener)

    def publish(self, event: Event) -> None:
        """Records an event and passes it to all subscribers."""
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
