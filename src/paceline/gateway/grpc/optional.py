"""Serves gRPC if the settings ask for it. Only then is the package `grpc` needed, which is an extra."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from paceline.core.errors import UsageError
from paceline.gateway.http.context import Gateway
from paceline.gateway.http.front import Front
from paceline.observability import log_event

_LOGGER = logging.getLogger(__name__)


@asynccontextmanager
async def serve_grpc(gateway: Gateway, fronts: Sequence[Front]) -> AsyncIterator[None]:
    """Serves Paceline's own service and those of the fronts, if the settings have a gRPC port.

    Raises UsageError if it cannot listen there, or if the packages for gRPC are missing.
    """
    if gateway.config.grpc_port is None:
        yield
        return
    try:
        from paceline.gateway.grpc.generation_service import add_service
        from paceline.gateway.grpc.server import grpc_server
    except (ImportError, RuntimeError) as error:  # the generated code raises RuntimeError for an old package
        raise UsageError(f"--grpc-port needs more packages ({error}): pip install 'paceline[grpc]'") from error
    services = [add_service, *(front.add_grpc_service for front in fronts if front.add_grpc_service is not None)]
    async with grpc_server(gateway, services) as port:
        log_event(_LOGGER, "grpc ready", port=port)
        yield
