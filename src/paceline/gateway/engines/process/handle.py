"""`EngineHandle`: one engine process and its socket, from spawn to end.

It carries messages and reports how the process ended. The supervisor decides what to do about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from paceline.config import EngineConfig
from paceline.core.messages import (
    EngineStart,
    FromEngine,
    Shutdown,
    ToEngine,
    decode_from_engine,
    encode_message,
)
from paceline.observability.logging import LogFormat

_MODULE = "paceline.engine.process"
_STOP_TIMEOUT_S = 5.0
_DRAIN_TIMEOUT_MS = 100


class EngineHandle:
    """A running engine process. `start` creates it; the caller must call `stop` in the end."""

    def __init__(self, process: asyncio.subprocess.Process, socket: zmq.asyncio.Socket, address: Path) -> None:
        self._process = process
        self._socket = socket
        self._address = address
        self._heard_s = time.monotonic()

    @classmethod
    async def start(
        cls, config: EngineConfig, epoch: int, context: zmq.asyncio.Context, address: Path, log_format: LogFormat
    ) -> EngineHandle:
        """Spawns the process, in the process group of this one, with its socket at `address`.

        It returns before the models are loaded; the process sends `Ready` when they are.
        """
        socket = context.socket(zmq.DEALER)
        try:
            address.parent.mkdir(mode=0o700, exist_ok=True)  # a cleanup job for temporary files may have removed it
            socket.setsockopt(zmq.LINGER, 0)
            socket.set_hwm(0)
            socket.bind(f"ipc://{address}")
            process = await _spawn()
        except BaseException:
            socket.close()
            raise
        handle = cls(process, socket, address)
        handle._say_start(
            EngineStart(
                address=f"ipc://{address}", engine_config=config.model_dump_json(), epoch=epoch, log_format=log_format
            )
        )
        return handle

    @property
    def process_id(self) -> int:
        """The process' id."""
        return self._process.pid

    def send(self, message: ToEngine) -> None:
        """Queues a message. It never blocks, and does not raise if the process has ended."""
        self._socket.send(encode_message(message))

    async def receive(self) -> FromEngine:
        """Waits for the next message and returns it."""
        data = await self._socket.recv()
        self._heard_s = time.monotonic()
        return decode_from_engine(data)

    @property
    def silence_s(self) -> float:
        """Seconds since the last message."""
        return time.monotonic() - self._heard_s

    async def wait(self) -> str:
        """Waits for the process to end and returns how it ended, in words."""
        code = await self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    async def remaining(self) -> AsyncIterator[FromEngine]:
        """Yields the messages that an ended process has left in the socket."""
        while await self._socket.poll(_DRAIN_TIMEOUT_MS):
            yield await self.receive()

    async def stop(self) -> None:
        """Ends the process, by force if it does not end in time, and removes its socket."""
        if self._process.returncode is None:
            self.send(Shutdown())
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), _STOP_TIMEOUT_S)
            except TimeoutError:
                self.kill()
                await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._socket.close()
        self._address.unlink(missing_ok=True)

    def kill(self) -> None:
        """Ends the process at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _say_start(self, start: EngineStart) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(msgspec.json.encode(start) + b"\n")


async def _spawn() -> asyncio.subprocess.Process:
    """Starts the module with SIGINT blocked. Ctrl-C reaches the whole process group, but only the parent handles it.

    Several engines may start at once, so only the call that blocked the signal unblocks it.
    """
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return await asyncio.create_subprocess_exec(sys.executable, "-m", _MODULE, stdin=asyncio.subprocess.PIPE)
    finally:
        if signal.SIGINT not in previous:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
