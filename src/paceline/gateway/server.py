"""`serve`: runs the gateway process, from opening its socket to a clean end, with the engines as child processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import uvicorn
from prometheus_client import CollectorRegistry

from paceline.checkpoint import ResolvedModel
from paceline.config import EngineConfig, ServerConfig
from paceline.drafters.selection import find_model
from paceline.gateway.engines.process.start import create_replicas
from paceline.gateway.fronts import choose_fronts
from paceline.gateway.grpc.optional import serve_grpc
from paceline.gateway.http.app import create_app
from paceline.gateway.http.context import Gateway
from paceline.gateway.http.listener import open_listener, url_of
from paceline.gateway.pool import Pool
from paceline.gateway.service import GenerationService
from paceline.observability import Metrics, StatusBoard, configure_logging, log_event

_LOGGER = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S = 2


def serve(engine_configs: Sequence[EngineConfig], server_config: ServerConfig) -> None:
    """Serves until SIGINT or SIGTERM, then returns. It must be called in the main thread.

    Each of `engine_configs` becomes an engine in its own process. Raises UsageError if it cannot listen at the
    address, and an engine's own error if that engine cannot start.
    """
    configure_logging(server_config.log_format)
    _raise_file_limit()
    with open_listener(server_config.host, server_config.port) as listener:
        engines = [(config, find_model(config.model, config)) for config in engine_configs]
        asyncio.run(_Server(engines, server_config, listener).run())


def _raise_file_limit() -> None:
    """Raises the limit of open files, and so of connections, to the maximum; the usual limit is only 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _HttpServer(uvicorn.Server):
    """uvicorn without its own signal handlers: `_Server` decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Captures nothing."""
        yield


class _Server:
    """One run of `serve`."""

    def __init__(
        self,
        engines: Sequence[tuple[EngineConfig, ResolvedModel]],
        config: ServerConfig,
        listener: socket.socket,
    ) -> None:
        self._engines = engines
        self._config = config
        self._listener = listener
        self._fronts = choose_fronts(config.fronts)
        self._registry = CollectorRegistry()
        self._board = StatusBoard()
        Metrics(self._registry, self._board)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self) -> None:
        """Serves until a signal arrives or an engine or tokenizer fails to start."""
        with self._signals(), _socket_dir() as socket_dir:
            pool = Pool(create_replicas(self._engines, self._config, self._board, socket_dir))
            gateway = self._gateway(pool)
            running = asyncio.create_task(pool.run())
            announcing = asyncio.create_task(self._announce(pool))
            try:
                async with serve_grpc(gateway, self._fronts):
                    await self._serve(gateway, running, announcing)
            finally:
                for task in (announcing, running):
                    task.cancel()
                await asyncio.gather(announcing, running, return_exceptions=True)

    async def _serve(self, gateway: Gateway, running: asyncio.Task[None], announcing: asyncio.Task[None]) -> None:
        """Runs the HTTP server until a signal arrives; raises if an engine or a tokenizer fails to start."""
        pool = gateway.service.pool
        server = self._http_server(gateway)
        serving = asyncio.create_task(server.serve(sockets=[self._listener]))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            pending = {serving, stopping, running, announcing}
            while not (stopping.done() or serving.done() or running.done()):
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                if announcing.done():
                    announcing.result()
            await self._drain(pool, running)
        finally:
            stopping.cancel()
            pool.close()
            pool.end()
            server.should_exit = True
            await serving
        if running.done():
            running.result()

    async def _drain(self, pool: Pool, running: asyncio.Task[None]) -> None:
        """Refuses new requests and waits for open ones to end.

        It waits for `shutdown_grace_s` at most. A second signal ends the wait, and there is none if an engine failed
        to start.
        """
        pool.close()
        if running.done():
            return
        log_event(_LOGGER, "shutting down", grace_s=self._config.shutdown_grace_s)
        waits = [asyncio.create_task(wait) for wait in (pool.wait_idle(), self._wait_hurry())]
        await asyncio.wait(waits, timeout=self._config.shutdown_grace_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _wait_hurry(self) -> None:
        await self._hurry.wait()

    async def _announce(self, pool: Pool) -> None:
        """Logs the address once all engines have become ready; raises if a tokenizer cannot be loaded."""
        for replica in pool.replicas:
            await replica.wait_ready()
        if pool.is_ready:
            log_event(_LOGGER, "ready", url=f"{url_of(self._listener)}/v1", model=pool.default_model)

    def _gateway(self, pool: Pool) -> Gateway:
        return Gateway(
            config=self._config,
            service=GenerationService(pool),
            board=self._board,
            registry=self._registry,
            created_s=int(time.time()),
        )

    def _http_server(self, gateway: Gateway) -> _HttpServer:
        config = uvicorn.Config(
            create_app(gateway, self._fronts),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_CLOSE_TIMEOUT_S,
        )
        return _HttpServer(config)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Makes SIGINT and SIGTERM end the service; a second signal ends it without waiting for open requests."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()


@contextlib.contextmanager
def _socket_dir() -> Iterator[Path]:
    """Yields a directory of mode 0700 for the sockets, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="paceline-", ignore_cleanup_errors=True) as name:
        yield Path(name)
