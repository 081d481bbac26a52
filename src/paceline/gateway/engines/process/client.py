"""`EngineClient`: sends requests to the engine and delivers the engine's outputs to the calls that wait for them.

The supervisor starts and watches engines. It attaches an engine here when it is ready and detaches it when it ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from paceline.core import FinishReason, Output, Request
from paceline.core.errors import InvalidRequestError, PacelineError
from paceline.core.messages import AbortRequest, AddRequest, Failed, ModelInfo, Outputs, ToEngine
from paceline.gateway.engines.process.in_flight import InFlightRequest, OutputStream
from paceline.gateway.errors import EngineStartingError, QueueFullError, ShuttingDownError
from paceline.observability.status_board import (
    EngineDown,
    EngineReady,
    PromptSubmitted,
    RequestEnded,
    StatsReported,
    StatusBoard,
    TokensReceived,
)

Send = Callable[[ToEngine], None]


class EngineClient:
    """Sends requests to the engine called `name` and keeps track of them. It must be used on one event loop."""

    def __init__(self, name: str, board: StatusBoard, *, max_queued_requests: int, ready_timeout_s: float) -> None:
        self.name = name
        self._board = board
        self._max_queued_requests = max_queued_requests
        self._ready_timeout_s = ready_timeout_s
        self._ready = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._in_flight: dict[str, InFlightRequest] = {}
        self._send: Send | None = None
        self._epoch = 0
        self._model: ModelInfo | None = None
        self._is_closed = False
        self._num_waiting = 0
        self._num_in_preparation = 0

    @property
    def model(self) -> ModelInfo | None:
        """The model of the latest engine; None before an engine was ready for the first time."""
        return self._model

    @property
    def is_ready(self) -> bool:
        """Whether a request would be sent to the engine without waiting."""
        return self._ready.is_set() and not self._is_closed

    @property
    def num_outstanding(self) -> int:
        """The number of requests that the engine holds or whose prompts are being made."""
        return len(self._in_flight) + self._num_in_preparation

    @property
    def num_queued(self) -> int:
        """The number of requests that the engine holds and that wait for their first token."""
        return sum(not held.token_ids for held in self._in_flight.values())

    async def wait_ready(self) -> ModelInfo:
        """Waits until an engine is ready and returns its model.

        Raises EngineStartingError after the timeout, ShuttingDownError if the server shuts down, and QueueFullError if
        too many calls wait already.
        """
        while not self._ready.is_set() and not self._is_closed:  # the engine may end before a waiting call resumes
            await self._wait_for_engine()
        if self._is_closed or self._model is None:
            raise ShuttingDownError
        return self._model

    async def wait_attached(self) -> None:
        """Waits, without a timeout, until an engine is ready or the client is closed."""
        await self._ready.wait()

    @contextmanager
    def preparing(self, num_requests: int) -> Iterator[None]:
        """Reserves places in the queue for one call's choices while their prompts are made.

        Raises QueueFullError if the queue lacks the room now, and InvalidRequestError if it never has that much room.
        """
        self._check_queue(num_requests)
        self._num_in_preparation += num_requests
        try:
            yield
        finally:
            self._num_in_preparation -= num_requests

    async def submit(self, requests: Sequence[Request], arrival_s: float) -> OutputStream:
        """Sends all choices of one call, which arrived at `arrival_s`, as soon as an engine is ready.

        Raises what `wait_ready` and `preparing` raise; then the engine keeps none of the choices.
        """
        self._check_queue(len(requests))
        await self.wait_ready()
        self._check_queue(len(requests))
        with ExitStack() as stack:
            stream = OutputStream(requests, self._abandon)
            stack.enter_context(stream)
            for request in requests:
                self._send_request(request, stream, arrival_s)
            stack.pop_all()
        return stream

    async def wait_idle(self) -> None:
        """Returns when no request is in flight."""
        await self._idle.wait()

    def attach(self, epoch: int, model: ModelInfo, send: Send) -> None:
        """Sends requests to this engine from now on."""
        self._epoch, self._model, self._send = epoch, model, send
        self._board.publish(EngineReady(self.name, epoch))
        self._ready.set()

    def detach(self, error: Exception) -> None:
        """Fails the requests of the engine, which has ended, with `error`; new requests wait for the next engine."""
        self._send = None
        self._ready.clear()
        self._board.publish(EngineDown(self.name))
        for held in list(self._in_flight.values()):
            self._end(held, FinishReason.ERROR)
            held.stream.fail(error)

    def close(self) -> None:
        """Refuses new requests and those that still wait for an engine; requests in flight go on."""
        self._is_closed = True
        self._ready.set()

    def deliver(self, message: Outputs | Failed) -> None:
        """Delivers a message of the engine to the calls that wait for it; outputs for unknown requests are dropped."""
        if isinstance(message, Failed):
            self._deliver_failure(message)
            return
        if message.stats is not None:
            self._board.publish(StatsReported(self.name, message.stats))
        for output in message.outputs:
            self._deliver_output(output)

    async def _wait_for_engine(self) -> None:
        if self._num_waiting >= self._max_queued_requests:
            raise QueueFullError(self._num_waiting)
        self._num_waiting += 1
        try:
            await asyncio.wait_for(self._ready.wait(), self._ready_timeout_s)
        except TimeoutError:
            raise EngineStartingError(self._ready_timeout_s) from None
        finally:
            self._num_waiting -= 1

    def _check_queue(self, num_requests: int) -> None:
        if num_requests > self._max_queued_requests:
            message = f"one call may ask for at most {self._max_queued_requests} choices, not {num_requests}: split it"
            raise InvalidRequestError(message, "n", "too_many_choices")
        num_queued = self.num_queued + self._num_in_preparation
        if num_queued + num_requests > self._max_queued_requests:
            raise QueueFullError(num_queued)

    def _send_request(self, request: Request, stream: OutputStream, arrival_s: float) -> None:
        if self._send is None:
            raise ShuttingDownError
        if request.request_id in self._in_flight:
            raise InvalidRequestError("this request id is in use", "request_id", "invalid_value")
        held = InFlightRequest(request, self._epoch, arrival_s, arrival_s, stream)
        self._in_flight[request.request_id] = held
        self._idle.clear()
        try:
            self._send(AddRequest(request))
        except Exception:
            self._end(held, FinishReason.ERROR)
            raise
        self._board.publish(PromptSubmitted(self.name, len(request.prompt_token_ids)))

    def _deliver_failure(self, message: Failed) -> None:
        held = self._in_flight.get(message.request_id)
        if held is not None and held.epoch == message.epoch:
            self._end(held, FinishReason.ERROR)
            held.stream.fail(InvalidRequestError(message.error, message.param, message.code))

    def _deliver_output(self, output: Output) -> None:
        held = self._in_flight.get(output.request_id)
        if held is None:
            return
        try:
            are_first = not held.token_ids
            if not held.accept(output):
                return
            self._check_outcome(output)
        except PacelineError as error:
            self._abandon(held.request, FinishReason.ERROR)
            held.stream.fail(error)
            return
        if output.token_ids:
            now_s = time.monotonic()
            self._board.publish(TokensReceived(self.name, len(output.token_ids), now_s - held.heard_s, are_first))
            held.heard_s = now_s
        if output.finish_reason is not None:
            self._end(held, output.finish_reason)
        held.stream.put(output)

    def _check_outcome(self, output: Output) -> None:
        if output.finish_reason in (FinishReason.ERROR, FinishReason.ABORT):
            raise PacelineError(output.error or "the engine ended this request: send it again")

    def _abandon(self, request: Request, reason: FinishReason = FinishReason.ABORT) -> None:
        held = self._in_flight.get(request.request_id)
        if held is None:
            return
        self._end(held, reason)
        if self._send is not None:
            self._send(AbortRequest(request.request_id))

    def _end(self, held: InFlightRequest, reason: FinishReason) -> None:
        del self._in_flight[held.request.request_id]
        self._board.publish(RequestEnded(self.name, reason.value, time.monotonic() - held.arrival_s))
        if not self._in_flight:
            self._idle.set()
