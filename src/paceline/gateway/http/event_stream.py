"""`EventStream`: sends chunks as server-sent events, until `[DONE]`, an error event, or the client's disconnect."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paceline.core.errors import PacelineError
from paceline.gateway.http.disconnect import ClientGoneError, until_disconnect
from paceline.gateway.http.errors import api_error_from
from paceline.observability import log_event

_LOGGER = logging.getLogger(__name__)

Chunk = dict[str, Any]
Chunks = AsyncGenerator[Chunk, None]


def event(data: Chunk) -> bytes:
    """Returns one server-sent event with this data as JSON."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


class EventStream(Response):
    """A response made of a first chunk, which exists already, and the chunks that follow.

    `begin` waits for the first chunk before the response starts, so an error until then gets its own HTTP status. The
    generator of chunks is always closed in the end, which aborts unfinished choices.
    """

    media_type = "text/event-stream"

    def __init__(self, first: Chunk, rest: Chunks) -> None:
        self.status_code = 200
        self.background = None
        self._first = first
        self._rest = rest
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})

    @classmethod
    async def begin(cls, chunks: Chunks) -> EventStream:
        """Waits for the first chunk and returns the response; raises what the generator raises until then."""
        return cls(await anext(chunks), chunks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientGoneError):
            await until_disconnect(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._rest):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._send_event(send, event(self._first))
            try:
                async for chunk in self._rest:
                    await self._send_event(send, event(chunk))
                await self._send_event(send, b"data: [DONE]\n\n")
            except PacelineError as error:
                log_event(_LOGGER, "stream failed", level=logging.WARNING, reason=str(error))
                await self._send_event(send, event(api_error_from(error).body))
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_event(self, send: Send, data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})
