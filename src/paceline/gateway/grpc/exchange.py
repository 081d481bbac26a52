"""`ExchangeInterceptor`: handles what all gRPC calls need: request ids, errors, log lines and metrics.

It does for gRPC what `http/middleware.py` does for HTTP.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from paceline.core.errors import InvalidRequestError, PacelineError
from paceline.gateway.grpc.errors import code_of, metadata_of
from paceline.gateway.http.errors import api_error_from
from paceline.gateway.http.request_id import REQUEST_ID, request_id_from
from paceline.observability import StatusBoard, log_event
from paceline.observability.status_board import HttpAnswered

_LOGGER = logging.getLogger(__name__)
_MAX_MESSAGE_LENGTH = 1000  # clients refuse long trailing metadata, which the message is part of
_OK, _CANCELLED = 200, 499

# The package `grpc` itself has no generic types, only its stubs have.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class ExchangeInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the methods of all services."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Returns the method's handler with the exchange around it; None for an unknown method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return self._wrapped(handler, handler_call_details.method)

    def _wrapped(self, handler: Handler, method: str) -> Handler:
        behaviour: Any = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream

        async def answer(request: Any, context: Context) -> Any:  # noqa: ANN401 - any message
            async with self._exchange(method, context):
                return await behaviour(_checked(request), context)

        async def stream(request: Any, context: Context) -> AsyncIterator[Any]:  # noqa: ANN401 - any message
            async with self._exchange(method, context):
                responses = behaviour(_checked(request), context)
                if not hasattr(responses, "__aiter__"):
                    await responses  # a method that writes its responses itself, such as Watch of the health service
                    return
                async with aclosing(responses):
                    async for response in responses:
                        yield response

        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[bool(handler.request_streaming), bool(handler.response_streaming)]
        wrapped: Any = stream if handler.response_streaming else answer
        return make(wrapped, _lenient(handler.request_deserializer), handler.response_serializer)

    @asynccontextmanager
    async def _exchange(self, method: str, context: Context) -> AsyncIterator[None]:
        """Sends the request id first, and turns an exception into gRPC's error."""
        started_s = time.monotonic()
        request_id = request_id_from(metadata_value(context, REQUEST_ID))
        status = _CANCELLED
        await context.send_initial_metadata(((REQUEST_ID, request_id),))
        try:
            yield
            status = _OK
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            found = api_error_from(error)
            status = found.status
            if not isinstance(error, PacelineError):
                _LOGGER.exception("call failed")
            await context.abort(code_of(found), str(found)[:_MAX_MESSAGE_LENGTH], metadata_of(found))
        finally:
            self._record(method, request_id, status, time.monotonic() - started_s)

    def _record(self, method: str, request_id: str, status: int, duration_s: float) -> None:
        self._board.publish(HttpAnswered("GRPC", method, status, duration_s))
        log_event(
            _LOGGER,
            "request",
            request_id=request_id,
            method="GRPC",
            path=method,
            status=status,
            duration_s=round(duration_s, 4),
        )


class _Unreadable:
    """Stands for a frame that is no message of the expected type."""


def _lenient(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    """Returns a function that reads a frame as a message or as `_Unreadable`. An exception would become an error of the
    server, not of the client."""

    def read(data: bytes) -> Any:  # noqa: ANN401 - any message
        try:
            return data if deserialize is None else deserialize(data)
        except DecodeError:
            return _Unreadable()

    return read


def _checked(request: Any) -> Any:  # noqa: ANN401 - any message, or a stream of messages
    """Returns a request, or a stream of requests that raises InvalidRequestError at an unreadable frame."""
    if isinstance(request, AsyncIterator):
        return _checked_stream(request)
    if isinstance(request, _Unreadable):
        raise InvalidRequestError("the frame is not a message of this method's type")
    return request


async def _checked_stream(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _checked(request)


def metadata_value(context: Context, key: str) -> str | None:
    """Returns the first value that the client sent under a key."""
    found = (value for name, value in context.invocation_metadata() or () if name == key)
    value = next(found, None)
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value
