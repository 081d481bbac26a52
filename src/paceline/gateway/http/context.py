"""`Gateway`: the objects that the handlers of the HTTP app need. `serve` creates it once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from prometheus_client import CollectorRegistry

from paceline.config import ServerConfig
from paceline.gateway.service import GenerationService
from paceline.observability import StatusBoard


@dataclass(frozen=True, slots=True)
class Gateway:
    """The parts of one app. `registry` has all metrics that /metrics shows; `created_s` is the start in Unix time."""

    config: ServerConfig
    service: GenerationService
    board: StatusBoard
    registry: CollectorRegistry
    created_s: int


async def _gateway_of(request: Request) -> Gateway:  # a function that is not async would run in a thread
    gateway: Gateway = request.app.state.gateway
    return gateway


Served = Annotated[Gateway, Depends(_gateway_of)]
"""The type of a handler parameter into which FastAPI injects the gateway."""
