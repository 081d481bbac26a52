"""Handles what all routes need: request ids, the limit of body sizes, error bodies, log lines and metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paceline.gateway.http.disconnect import ClientGoneError
from paceline.gateway.http.errors import ApiError, api_error_from, openai_error_body
from paceline.gateway.http.front import Front
from paceline.gateway.http.request_id import REQUEST_ID, request_id_from
from paceline.observability import StatusBoard, log_event
from paceline.observability.status_board import HttpAnswered

_LOGGER = logging.getLogger(__name__)
_CLIENT_CLOSED_REQUEST = 499
_REFUSAL = "paceline.refusal"  # the key of the request's scope that holds the error with which it was answered
_ERROR_BODY = "paceline.error_body"  # the key of the request's scope that holds the form of its errors
_MAX_PARAM_LENGTH = 100
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
_UNKNOWN = "unknown"


def error_response(request: HTTPConnection, error: ApiError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Returns the response for an error in the form of the request's front, and keeps the error for its log line."""
    request.scope[_REFUSAL] = error
    error_body: Callable[[ApiError], dict[str, Any]] = request.scope[_ERROR_BODY]
    return JSONResponse(error_body(error), error.status, {**error.headers, **(headers or {})})


class BodyTooLargeError(ApiError):
    """The request's body is larger than the limit."""

    def __init__(self, max_size_bytes: int) -> None:
        message = f"the request body is larger than {max_size_bytes} bytes: send less"
        super().__init__(413, message, code="request_too_large")


@dataclass(slots=True)
class _Exchange:
    """One request and its response while they pass through the middleware."""

    request_id: str
    max_body_size_bytes: int
    receive_next: Receive
    send_next: Send
    started_s: float = field(default_factory=time.monotonic)
    body_size_bytes: int = 0
    status: int | None = None

    async def receive(self) -> Message:
        """Returns the next message from the client; raises BodyTooLargeError."""
        message = await self.receive_next()
        self.body_size_bytes += len(message.get("body", b""))
        if self.body_size_bytes > self.max_body_size_bytes:
            raise BodyTooLargeError(self.max_body_size_bytes)
        return message

    async def send(self, message: Message) -> None:
        """Sends a message to the client, and adds the request id to its headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)[REQUEST_ID] = self.request_id
        await self.send_next(message)


class ExchangeMiddleware:
    """The outermost layer of the app. It answers every exception with an error, unless the response has begun."""

    def __init__(self, app: ASGIApp, *, fronts: Sequence[Front], board: StatusBoard, max_body_size_bytes: int) -> None:
        self._app = app
        self._fronts = fronts
        self._board = board
        self._max_body_size_bytes = max_body_size_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        owners = (front.error_body for front in self._fronts if front.owns(scope["path"]))
        scope[_ERROR_BODY] = next(owners, openai_error_body)
        request_id = request_id_from(headers.get(REQUEST_ID))
        exchange = _Exchange(request_id, self._max_body_size_bytes, receive, send)
        try:
            await self._run(scope, headers, exchange)
        finally:
            self._record(scope, exchange)

    async def _run(self, scope: Scope, headers: Headers, exchange: _Exchange) -> None:
        try:
            announced = headers.get("content-length", "0")
            if announced.isdigit() and int(announced) > self._max_body_size_bytes:
                raise BodyTooLargeError(self._max_body_size_bytes)
            await self._app(scope, exchange.receive, exchange.send)
        except (ClientGoneError, ClientDisconnect):
            exchange.status = _CLIENT_CLOSED_REQUEST
        except Exception as error:
            if not isinstance(error, ApiError):
                _LOGGER.exception("request failed")
            if exchange.status is not None:
                raise
            response = error_response(HTTPConnection(scope), api_error_from(error))
            await response(scope, exchange.receive, exchange.send)

    def _record(self, scope: Scope, exchange: _Exchange) -> None:
        duration_s = time.monotonic() - exchange.started_s
        status = exchange.status or _CLIENT_CLOSED_REQUEST
        self._board.publish(HttpAnswered(*_labels_of(scope), status, duration_s))
        log_event(
            _LOGGER,
            "request",
            request_id=exchange.request_id,
            method=scope["method"],
            path=scope["path"],
            status=status,
            duration_s=round(duration_s, 4),
            **_reason_of(scope),
        )


def _reason_of(scope: Scope) -> dict[str, Any]:
    """Returns the error code and the field name of a refused request. It omits the message, which may quote the
    client's text."""
    error: ApiError | None = scope.get(_REFUSAL)
    if error is None:
        return {}
    field = {} if error.param is None else {"param": error.param[:_MAX_PARAM_LENGTH]}
    return {"error": error.code or error.kind, **field}


def _labels_of(scope: Scope) -> tuple[str, str]:
    """Returns method and route for the metrics. Values that a client made up become "unknown", or each would add a
    metric."""
    route: str = getattr(scope.get("route"), "path", _UNKNOWN)
    is_known = route != _UNKNOWN and scope["method"] in _METHODS
    return (scope["method"] if is_known else _UNKNOWN), route
