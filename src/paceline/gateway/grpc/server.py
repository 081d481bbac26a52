"""Starts the gRPC server: Paceline's own service, those of fronts, health, and reflection if it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from paceline.core.errors import UsageError
from paceline.gateway.grpc.exchange import ExchangeInterceptor
from paceline.gateway.http.context import Gateway

AddService = Callable[[Gateway, grpc.aio.Server], str]
"""Adds a service to a server, and returns the service's full name."""

_HEALTH_INTERVAL_S = 0.2  # clients hear of an engine's end within the second that HTTP takes
_GRACE_S = 2.0  # for open calls, whose engines have ended already


@asynccontextmanager
async def grpc_server(gateway: Gateway, services: Sequence[AddService]) -> AsyncIterator[int]:
    """Runs a gRPC server at the host and the gRPC port of the settings, and yields its port.

    Raises UsageError if it cannot listen there.
    """
    config = gateway.config
    server = grpc.aio.server(
        interceptors=(ExchangeInterceptor(gateway.board),),
        options=(
            ("grpc.max_receive_message_length", config.max_body_size_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ),
    )
    names = [add(gateway, server) for add in services]
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    if config.has_grpc_reflection:
        _add_reflection(server, [*names, health.SERVICE_NAME])
    host = f"[{config.host}]" if ":" in config.host else config.host
    try:
        port = server.add_insecure_port(f"{host}:{config.grpc_port}")
    except RuntimeError as error:
        message = f"cannot listen at port {config.grpc_port} on {config.host}: choose another with --grpc-port"
        raise UsageError(message) from error
    await server.start()
    watching = asyncio.create_task(_report_health(gateway, checks, names))
    try:
        yield port
    finally:
        watching.cancel()
        await server.stop(_GRACE_S)


async def _report_health(gateway: Gateway, checks: health.aio.HealthServicer, names: Sequence[str]) -> None:
    """Tells the health service whether any engine is ready, whenever that changes."""
    reported: bool | None = None
    while True:
        if gateway.service.pool.is_ready is not reported:
            reported = gateway.service.pool.is_ready
            serving = health_pb2.HealthCheckResponse
            for name in ("", *names):
                await checks.set(name, serving.SERVING if reported else serving.NOT_SERVING)
        await asyncio.sleep(_HEALTH_INTERVAL_S)


def _add_reflection(server: grpc.aio.Server, names: Sequence[str]) -> None:
    reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)
