"""`serve`: the gateway process from its listening socket to its clean end, with the engine as its child."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import uvicorn
from prometheus_client import CollectorRegistry

from paceline.checkpoint import ResolvedModel, resolve_model
from paceline.config import EngineConfig, GatewayConfig
from paceline.core.errors import UsageError
from paceline.gateway.app import create_app
from paceline.gateway.engine_client import EngineClient
from paceline.gateway.errors import shutting_down
from paceline.gateway.gateway import Gateway
from paceline.gateway.listener import open_listener, url_of
from paceline.gateway.served_model import ServedModel, load_tokenizer
from paceline.gateway.supervisor import Supervisor
from paceline.observability import EngineMetrics, HttpMetrics, configure_logging, log_event
from paceline.tokenizer import Tokenizer

_LOGGER = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S = 2
_MAX_SOCKET_DIR_LENGTH = 92  # a socket's path, this and `/engine-<epoch>`, has at most 107 bytes


def serve(engine_config: EngineConfig, gateway_config: GatewayConfig) -> None:
    """Serves until SIGINT or SIGTERM, then returns; the calling thread must be the main one.

    Raises UsageError where the address is taken, and the engine's own error where it cannot start.
    """
    configure_logging(gateway_config.log_format)
    with open_listener(gateway_config.host, gateway_config.port) as listener:
        resolved = resolve_model(engine_config.model, is_offline=engine_config.is_offline)
        asyncio.run(_Service(engine_config, gateway_config, resolved, listener).run())


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: `_Service` decides when to end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Captures nothing."""
        yield


class _Service:
    """One run of `serve`."""

    def __init__(
        self,
        engine_config: EngineConfig,
        gateway_config: GatewayConfig,
        resolved: ResolvedModel,
        listener: socket.socket,
    ) -> None:
        self._engine_config = engine_config
        self._gateway_config = gateway_config
        self._resolved = resolved
        self._listener = listener
        self._name = gateway_config.served_model_name or resolved.name
        self._registry = CollectorRegistry()
        self._metrics = EngineMetrics(self._registry, self._name)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self) -> None:
        """Serves until a signal comes or a start fails."""
        client = EngineClient(
            self._metrics,
            max_queued_requests=self._gateway_config.max_queued_requests,
            ready_timeout_s=self._gateway_config.ready_timeout_s,
        )
        tokenizer = asyncio.ensure_future(asyncio.to_thread(load_tokenizer, self._resolved.path))
        with self._signals(), _socket_dir() as socket_dir:
            supervisor = Supervisor(
                self._engine_config,
                client,
                self._metrics,
                socket_dir=socket_dir,
                log_format=self._gateway_config.log_format,
                engine_timeout_s=self._gateway_config.engine_timeout_s,
            )
            supervising = asyncio.create_task(supervisor.run())
            announcing = asyncio.create_task(self._announce(client, tokenizer))
            try:
                await self._serve(client, tokenizer, supervising, announcing)
            finally:
                for task in (announcing, supervising):
                    task.cancel()
                await asyncio.gather(announcing, supervising, tokenizer, return_exceptions=True)

    async def _serve(
        self,
        client: EngineClient,
        tokenizer: asyncio.Future[Tokenizer],
        supervising: asyncio.Task[None],
        announcing: asyncio.Task[None],
    ) -> None:
        """Runs the HTTP server until a signal, or until the engine or the tokenizer fails to start; then raises."""
        server = self._http_server(client, tokenizer)
        serving = asyncio.create_task(server.serve(sockets=[self._listener]))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            pending = {serving, stopping, supervising, announcing}
            while not (stopping.done() or serving.done() or supervising.done()):
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                if announcing.done():
                    announcing.result()
            await self._drain(client, supervising)
        finally:
            stopping.cancel()
            client.close()
            client.detach(shutting_down())
            server.should_exit = True
            await serving
        if supervising.done():
            supervising.result()

    async def _drain(self, client: EngineClient, supervising: asyncio.Task[None]) -> None:
        """Takes no new requests and gives open ones a grace, which a second signal or the engine's end cuts short."""
        client.close()
        if supervising.done():
            return
        log_event(_LOGGER, "shutting down", grace_s=self._gateway_config.shutdown_grace_s)
        waits = [asyncio.create_task(wait) for wait in (client.wait_idle(), self._hurry.wait())]
        await asyncio.wait(waits, timeout=self._gateway_config.shutdown_grace_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _announce(self, client: EngineClient, tokenizer: asyncio.Future[Tokenizer]) -> None:
        """Logs the address once requests are answered at once; raises where the tokenizer cannot be loaded."""
        await asyncio.shield(tokenizer)
        await client.wait_attached()
        if client.is_ready:
            log_event(_LOGGER, "ready", url=f"{url_of(self._listener)}/v1", model=self._name)

    def _http_server(self, client: EngineClient, tokenizer: asyncio.Future[Tokenizer]) -> _Server:
        gateway = Gateway(
            config=self._gateway_config,
            model=ServedModel(self._name, self._resolved.name, tokenizer),
            client=client,
            registry=self._registry,
            http_metrics=HttpMetrics(self._registry),
            created_s=int(time.time()),
        )
        config = uvicorn.Config(
            create_app(gateway),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_CLOSE_TIMEOUT_S,
        )
        return _Server(config)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the service; the second one does so without grace."""
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
    """A directory of mode 0700 for the sockets, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="paceline-", ignore_cleanup_errors=True) as name:
        if len(os.fsencode(name)) > _MAX_SOCKET_DIR_LENGTH:
            raise UsageError(f"the path {name} is too long for sockets: set TMPDIR to a shorter one")
        yield Path(name)
