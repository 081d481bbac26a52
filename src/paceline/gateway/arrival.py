"""`Arrival`: when an API call came, from whom and how large; its handler notes that before it does anything else."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

from starlette.requests import Request

_DIGEST_SIZE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Arrival:
    """`time_s` is of the monotonic clock, `tenant` a hash of the credentials: the key itself is kept nowhere."""

    time_s: float
    tenant: str
    body_size_bytes: int

    @classmethod
    async def of(cls, request: Request) -> Arrival:
        """The arrival, now, of a call with these headers and this body, which has been read."""
        body = await request.body()
        return cls(time.monotonic(), tenant_of(request.headers.get("authorization", "")), len(body))


def tenant_of(credentials: str) -> str:
    """The tenant of an Authorization header's value; all calls without one are of the tenant ""."""
    if not credentials:
        return ""
    return hashlib.blake2b(credentials.encode(), digest_size=_DIGEST_SIZE_BYTES).hexdigest()
