"""The arrival of a gRPC call: who sent it, and when."""

from __future__ import annotations

import time

from paceline.gateway.grpc.exchange import Context, metadata_value
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.principal import principal_of


def arrival_of(context: Context, size_bytes: int) -> Arrival:
    """Returns the arrival of a message, with the current time. Keys are in the same metadata as in HTTP's headers."""
    principal = principal_of(metadata_value(context, "authorization"), metadata_value(context, "x-api-key"))
    return Arrival(time.monotonic(), principal, size_bytes)
