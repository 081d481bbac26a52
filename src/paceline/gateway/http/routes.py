"""`post` and `get` register routes: they document them, parse bodies, and cancel the work if the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from paceline.gateway.http.arrival import Arrival, arrival_of
from paceline.gateway.http.body_parsing import Body, parse_body
from paceline.gateway.http.context import Gateway, Served
from paceline.gateway.http.disconnect import until_disconnect
from paceline.gateway.http.openapi import ErrorBody, body_of, error_responses

Handler = TypeVar("Handler", bound=Callable[..., Any])
_SMALL_BODY_BYTES = 16384
_GENERATION_ERRORS = (400, 404, 413, 429, 500, 503)


def post(
    routes: APIRouter,
    path: str,
    schema: type[Body],
    answer: Callable[[Gateway, Body, Arrival], Coroutine[Any, Any, Response]],
    error_body: type[BaseModel] = ErrorBody,
) -> None:
    """Makes `answer` answer POST requests to `path`, whose body is a `schema`. Errors have the form `error_body`.

    The content type that the client claims is ignored. If the client disconnects, `answer` is cancelled.
    """

    async def handle(request: Request, gateway: Served) -> Response:
        body = await _parsed(schema, await request.body())
        return await until_disconnect(request.receive, answer(gateway, body, await arrival_of(request)))

    responses = error_responses(error_body, *_GENERATION_ERRORS)
    responses[499] = {"description": "the client went away"}
    routes.post(path, openapi_extra=body_of(schema), responses=responses, name=answer.__name__)(handle)


def get(
    routes: APIRouter, path: str, *error_statuses: int, error_body: type[BaseModel] = ErrorBody
) -> Callable[[Handler], Handler]:
    """Returns a decorator that makes a function answer GET and HEAD. Only GET is documented."""

    def register(handler: Handler) -> Handler:
        routes.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)(handler)
        responses = error_responses(error_body, *error_statuses)
        return routes.get(path, responses=responses)(handler)  # for the document

    return register


async def _parsed(schema: type[Body], data: bytes) -> Body:
    """Returns the body; larger ones are parsed in a thread."""
    if len(data) <= _SMALL_BODY_BYTES:
        return parse_body(schema, data)
    return await asyncio.to_thread(parse_body, schema, data)
