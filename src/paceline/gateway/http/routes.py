"""`post` and `get` register routes: they document them, parse bodies, and cancel the work if the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from paceline.gateway.http.arrival import Arrival, arrival_of
from paceline.gateway.http.body_parsing import Body, parse_body
from paceline.gateway.http.context import Gateway, Served
from paceline.gateway.http.disconnect import until_disconnect
from paceline.gateway.http.openapi import ErrorBody, body_of, error_responses
from paceline.gateway.http.streamed_response import EVENT_STREAM_TYPE

Handler = TypeVar("Handler", bound=Callable[..., Any])
_SMALL_BODY_BYTES = 16384
GENERATION_ERRORS = (400, 403, 404, 413, 429, 500, 503)


def post(
    routes: APIRouter,
    path: str,
    schema: type[Body],
    answer: Callable[[Gateway, Body, Arrival], Coroutine[Any, Any, Response]],
    error_body: type[BaseModel] = ErrorBody,
    stream_type: str | None = None,
) -> None:
    """Makes `answer` answer POST requests to `path`, whose body is a `schema`. Errors have the form `error_body`, and
    streams, if there are any, have the content type `stream_type`.

    The content type that the client claims is ignored. If the client disconnects, `answer` is cancelled.
    """

    async def handle(request: Request, gateway: Served) -> Response:
        body = await _parsed(schema, await request.body())
        return await until_disconnect(request.receive, answer(gateway, body, await arrival_of(request)))

    responses = {**error_responses(error_body, *GENERATION_ERRORS), 200: _answer_of(stream_type)}
    routes.post(path, openapi_extra=body_of(schema), responses=responses, name=answer.__name__)(handle)


def get(
    routes: APIRouter,
    path: str,
    *error_statuses: int,
    error_body: type[BaseModel] = ErrorBody,
    response_class: type[Response] = JSONResponse,
) -> Callable[[Handler], Handler]:
    """Returns a decorator that makes a function answer GET and HEAD. Only GET is documented, with the content type of
    `response_class`; a plain `Response` has no content."""

    def register(handler: Handler) -> Handler:
        routes.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)(handler)
        responses = error_responses(error_body, 403, *error_statuses)
        return routes.get(path, responses=responses, response_class=response_class)(handler)  # for the document

    return register


def _answer_of(stream_type: str | None) -> dict[str, Any]:
    """Returns the documentation of the answer, whole and streamed."""
    content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if stream_type == EVENT_STREAM_TYPE:
        event = {"data": {"type": "string"}, "event": {"type": "string"}}
        content[stream_type] = {"schema": {"type": "object", "properties": event, "required": ["data"]}}
    elif stream_type is not None:
        content[stream_type] = {"schema": {"type": "string"}}
    return {"description": "the answer", "content": content}


async def _parsed(schema: type[Body], data: bytes) -> Body:
    """Returns the body; larger ones are parsed in a thread."""
    if len(data) <= _SMALL_BODY_BYTES:
        return parse_body(schema, data)
    return await asyncio.to_thread(parse_body, schema, data)
