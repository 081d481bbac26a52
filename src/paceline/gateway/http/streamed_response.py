"""`StreamedResponse`: sends chunks while they are made, until the last one, an error, or the client's disconnect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paceline.core.errors import PacelineError
from paceline.gateway.http.disconnect import ClientGoneError, until_disconnect
from paceline.gateway.http.errors import ApiError, api_error_from, openai_error_body
from paceline.observability import log_event

_LOGGER = logging.getLogger(__name__)

Chunk = dict[str, Any]
Chunks = AsyncGenerator[Chunk, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFormat:
    """How chunks become bytes. `end` follows the last chunk. `keep_alive` is sent while nothing else can be sent, so
    that clients and proxies do not give up; empty if the format has nothing for that."""

    media_type: str
    encode: Callable[[Chunk], bytes]
    error_chunk: Callable[[ApiError], Chunk]
    end: bytes = b""
    keep_alive: bytes = b""


def event(data: Chunk) -> bytes:
    """Returns one server-sent event with this data as JSON."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def typed_event(data: Chunk) -> bytes:
    """Returns one server-sent event whose name is the data's `type`."""
    return f"event: {data['type']}\n".encode() + event(data)


def json_line(data: Chunk) -> bytes:
    """Returns one line of newline-delimited JSON."""
    return msgspec.json.encode(data) + b"\n"


EVENT_STREAM_TYPE = "text/event-stream"
KEEP_ALIVE_COMMENT = b": keep-alive\n\n"
SERVER_SENT_EVENTS = StreamFormat(
    media_type=EVENT_STREAM_TYPE,
    encode=event,
    error_chunk=openai_error_body,
    end=b"data: [DONE]\n\n",
    keep_alive=KEEP_ALIVE_COMMENT,
)
"""Server-sent events as in OpenAI's chat completions."""


class StreamedResponse(Response):
    """A response made of chunks. The generator of chunks is always closed in the end, which aborts unfinished choices.

    `begin` waits for the first chunk before the response starts, so an error until then gets its own HTTP status. If
    that takes longer than `keep_alive_s`, the response starts without it.
    """

    def __init__(self, first: asyncio.Task[Chunk], rest: Chunks, form: StreamFormat, keep_alive_s: float) -> None:
        self.status_code = 200
        self.background = None
        self.media_type = form.media_type
        self._first = first
        self._rest = rest
        self._form = form
        self._keep_alive_s = keep_alive_s
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})

    @classmethod
    async def begin(cls, chunks: Chunks, form: StreamFormat, keep_alive_s: float) -> StreamedResponse:
        """Returns the response once it has a first chunk or nothing was sent for `keep_alive_s`; raises what the
        generator raises until then."""
        first = asyncio.ensure_future(anext(chunks))
        try:
            await asyncio.wait((first,), timeout=keep_alive_s if form.keep_alive else None)
        except asyncio.CancelledError:
            await _closed(first, chunks)
            raise
        if first.done():
            first.result()
        return cls(first, chunks, form, keep_alive_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with suppress(ClientGoneError):
                await until_disconnect(receive, self._send_all(send))
        finally:
            await _closed(self._first, self._rest)

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            while not self._first.done():
                await asyncio.wait((self._first,), timeout=self._keep_alive_s)
                if not self._first.done():
                    await self._send_bytes(send, self._form.keep_alive)
            await self._send_bytes(send, self._form.encode(await self._first))
            async for chunk in self._rest:
                await self._send_bytes(send, self._form.encode(chunk))
            await self._send_bytes(send, self._form.end)
        except PacelineError as error:
            log_event(_LOGGER, "stream failed", level=logging.WARNING, reason=str(error))
            await self._send_bytes(send, self._form.encode(self._form.error_chunk(api_error_from(error))))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_bytes(self, send: Send, data: bytes) -> None:
        if data:
            await send({"type": "http.response.body", "body": data, "more_body": True})


async def _closed(first: asyncio.Task[Chunk], chunks: Chunks) -> None:
    """Ends the wait for the first chunk, and closes the generator."""
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    async with aclosing(chunks):
        pass
