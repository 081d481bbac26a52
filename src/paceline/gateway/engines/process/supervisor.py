"""`Supervisor`: keeps one engine process running and tells the `EngineClient` when an engine is ready or has ended.

An engine that ends by itself is started again with the next epoch. If it keeps ending soon after its start, the delay
before the next start grows. If no engine ever became ready, the supervisor gives up and raises the engine's error.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from pathlib import Path
from types import MappingProxyType

import zmq
import zmq.asyncio

from paceline.config import EngineConfig
from paceline.core import errors
from paceline.core.errors import PacelineError
from paceline.core.messages import Failed, Fatal, FromEngine, Outputs, Ping, Ready
from paceline.gateway.engines.process.client import EngineClient
from paceline.gateway.engines.process.handle import EngineHandle
from paceline.gateway.errors import EngineEndedError
from paceline.observability import log_event
from paceline.observability.logging import FieldValue, LogFormat
from paceline.observability.status_board import EngineRestarting, StatusBoard

_LOGGER = logging.getLogger(__name__)
_FIRST_DELAY_S = 0.5
_MAX_DELAY_S = 30.0
_HEALTHY_AFTER_S = 60.0
_PINGS_PER_TIMEOUT = 4
_LEAST_START_TIMEOUT_S = 300.0
_ERROR_KINDS = MappingProxyType(
    {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, PacelineError)}
)


class RestartDelay:
    """The delay before an engine is started again. It is 0 s at first and after a run of at least 60 s; otherwise it
    begins at 0.5 s and doubles up to 30 s."""

    def __init__(self) -> None:
        self._delay_s = 0.0

    def after(self, lifetime_s: float) -> float:
        """Returns the delay in seconds after an engine that ran for `lifetime_s`."""
        if lifetime_s >= _HEALTHY_AFTER_S:
            self._delay_s = 0.0
        delay_s = self._delay_s
        self._delay_s = min(max(_FIRST_DELAY_S, 2 * self._delay_s), _MAX_DELAY_S)
        return delay_s


class Supervisor:
    """Runs engine processes one after another until cancelled."""

    def __init__(
        self,
        config: EngineConfig,
        client: EngineClient,
        board: StatusBoard,
        *,
        socket_dir: Path,
        log_format: LogFormat,
        engine_timeout_s: float,
    ) -> None:
        self._config = config
        self._client = client
        self._board = board
        self._socket_dir = socket_dir
        self._log_format = log_format
        self._engine_timeout_s = engine_timeout_s

    async def run(self) -> None:
        """Never returns; raises the engine's own error if an engine ends before any was ready."""
        delay = RestartDelay()
        with zmq.asyncio.Context() as context:
            for epoch in itertools.count():
                started_s = time.monotonic()
                error = await self._end_of_engine(epoch, context)
                if self._client.model is None:
                    raise error
                delay_s = delay.after(time.monotonic() - started_s)
                self._board.publish(EngineRestarting(self._client.name, str(error), delay_s))
                self._log("engine ended", level=logging.ERROR, reason=str(error), restart_in_s=delay_s)
                await asyncio.sleep(delay_s)

    async def _end_of_engine(self, epoch: int, context: zmq.asyncio.Context) -> PacelineError:
        """Runs an engine and returns why it ended. An error in the supervisor ends this engine but not the gateway."""
        try:
            return await self._run_engine(epoch, context)
        except Exception as error:
            _LOGGER.exception("the supervisor of engine %s failed", self._client.name)
            return PacelineError(f"the gateway failed to serve the engine: {error or type(error).__name__}")

    async def _run_engine(self, epoch: int, context: zmq.asyncio.Context) -> PacelineError:
        """Starts an engine, serves it until it ends, and returns why it ended."""
        address = self._socket_dir / f"engine-{self._client.name}-{epoch}"
        try:
            engine = await EngineHandle.start(self._config, epoch, context, address, self._log_format)
        except (OSError, zmq.ZMQError) as error:
            return PacelineError(f"the engine process could not be started: {error}")
        self._log("engine starting", epoch=epoch, process_id=engine.process_id)
        try:
            return await self._attend(engine)
        finally:
            self._client.detach(EngineEndedError())
            await engine.stop()

    def _log(self, event: str, *, level: int = logging.INFO, **fields: FieldValue) -> None:
        log_event(_LOGGER, event, level=level, engine=self._client.name, **fields)

    async def _attend(self, engine: EngineHandle) -> PacelineError:
        receiving = asyncio.create_task(self._receive(engine))
        ending = asyncio.create_task(engine.wait())
        watching = asyncio.create_task(self._watch(engine))
        try:
            await asyncio.wait((receiving, ending), return_when=asyncio.FIRST_COMPLETED)
            if receiving.done():
                return receiving.result()
        finally:
            for task in (receiving, ending, watching):
                task.cancel()
            await asyncio.gather(receiving, ending, watching, return_exceptions=True)
        return await self._last_words(engine, ending.result())

    async def _watch(self, engine: EngineHandle) -> None:
        """Kills an engine that does not even answer pings for too long; an engine that is loading has more time."""
        start_timeout_s = max(_LEAST_START_TIMEOUT_S, self._engine_timeout_s)
        for number in itertools.count():
            await asyncio.sleep(self._engine_timeout_s / _PINGS_PER_TIMEOUT)
            timeout_s = self._engine_timeout_s if self._client.is_ready else start_timeout_s
            if engine.silence_s > timeout_s:
                self._log("engine hangs", level=logging.ERROR, silence_s=engine.silence_s)
                engine.kill()
                return
            engine.send(Ping(number))

    async def _receive(self, engine: EngineHandle) -> PacelineError:
        while True:
            error = self._handle(engine, await engine.receive())
            if error is not None:
                return error

    async def _last_words(self, engine: EngineHandle, end: str) -> PacelineError:
        async for message in engine.remaining():
            error = self._handle(engine, message)
            if error is not None:
                return error
        return PacelineError(f"the engine process ended with {end}: see the log above")

    def _handle(self, engine: EngineHandle, message: FromEngine) -> PacelineError | None:
        """Acts on a message; returns an error if the engine reports that it could not start."""
        match message:
            case Ready():
                self._log("engine ready", epoch=message.epoch, model=message.model.name)
                self._client.attach(message.epoch, message.model, engine.send)
            case Outputs() | Failed():
                self._client.deliver(message)
            case Fatal():
                return error_of_kind(message.kind, message.error)
        return None


def error_of_kind(kind: str, message: str) -> PacelineError:
    """Returns the error that an engine process reported by class name and message."""
    return _ERROR_KINDS.get(kind, PacelineError)(message)
