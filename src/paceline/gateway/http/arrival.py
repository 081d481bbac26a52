"""`Arrival`: what the gateway knows about a request beside its body."""

from __future__ import annotations

import time
from dataclasses import dataclass

from fastapi import Request

from paceline.gateway.principal import Principal, principal_of


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a request arrived, in seconds of the monotonic clock, who sent it, and how large its body is."""

    time_s: float
    principal: Principal
    body_size_bytes: int


async def arrival_of(request: Request) -> Arrival:
    """Returns the arrival of a request, with the current time."""
    principal = principal_of(request.headers.get("authorization"), request.headers.get("x-api-key"))
    return Arrival(time.monotonic(), principal, len(await request.body()))
