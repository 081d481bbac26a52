"""`Arrival`: what the gateway knows about a request beside its body."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from paceline.gateway.principal import Principal, principal_of


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a request arrived, in seconds of the monotonic clock, who sent it, and how large its body is."""

    time_s: float
    principal: Principal
    body_size_bytes: int


async def arrival_of(request: Request) -> Arrival:
    """Returns the arrival of a request, with the current time."""
    return Arrival(time.monotonic(), caller_of(request), len(await request.body()))


def caller_of(request: Request) -> Principal:
    """Returns who sent a request."""
    return principal_of(request.headers.get("authorization"), request.headers.get("x-api-key"))


async def _caller_of(request: Request) -> Principal:  # a function that is not async would run in a thread
    return caller_of(request)


Caller = Annotated[Principal, Depends(_caller_of)]
"""The type of a handler parameter into which FastAPI injects the caller."""
