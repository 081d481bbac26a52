"""The routes of OpenAI's API that are served. The modules `chat` and `completions` do the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from paceline.gateway.http.context import Gateway, Served
from paceline.gateway.http.disconnect import until_disconnect
from paceline.gateway.http.openapi import body_of, error_responses, get
from paceline.gateway.openai.chat import create_chat_completion
from paceline.gateway.openai.completions import create_completion
from paceline.gateway.openai.generation_call import Arrival
from paceline.gateway.openai.parsing import Body, parse_body
from paceline.gateway.openai.schema import ChatCompletionRequest, CompletionRequest
from paceline.gateway.pool import ServedModel
from paceline.gateway.principal import principal_of

SCHEMAS = (ChatCompletionRequest, CompletionRequest)
_OWNER = "paceline"
_SMALL_BODY_BYTES = 16384


def create_routes() -> APIRouter:
    """Returns the routes under /v1."""
    routes = APIRouter(prefix="/v1", tags=["openai"])
    generation = {**error_responses(400, 404, 413, 429, 500, 503), 499: {"description": "the client went away"}}

    @routes.post("/chat/completions", openapi_extra=body_of(ChatCompletionRequest), responses=generation)
    async def chat_completions(
        request: Request,
        gateway: Served,
        body: Annotated[ChatCompletionRequest, Depends(_body_of(ChatCompletionRequest))],
    ) -> Response:
        answering = create_chat_completion(gateway.service, body, await _arrival_of(request))
        return await until_disconnect(request.receive, answering)

    @routes.post("/completions", openapi_extra=body_of(CompletionRequest), responses=generation)
    async def completions(
        request: Request, gateway: Served, body: Annotated[CompletionRequest, Depends(_body_of(CompletionRequest))]
    ) -> Response:
        answering = create_completion(gateway.service, body, await _arrival_of(request))
        return await until_disconnect(request.receive, answering)

    @get(routes, "/models")
    async def models(gateway: Served) -> dict[str, Any]:
        found = gateway.service.pool.models()
        return {"object": "list", "data": [_description_of(model, gateway) for model in found]}

    @get(routes, "/models/{name:path}", 404)
    async def model(gateway: Served, name: str) -> dict[str, Any]:
        return _description_of(gateway.service.pool.find_model(name), gateway)

    return routes


def _body_of(schema: type[Body]) -> Callable[[Request], Coroutine[Any, Any, Body]]:
    """Returns a dependency that parses the body and ignores the content type that the client claims."""

    async def parse(request: Request) -> Body:
        data = await request.body()
        if len(data) <= _SMALL_BODY_BYTES:
            return parse_body(schema, data)
        return await asyncio.to_thread(parse_body, schema, data)

    return parse


async def _arrival_of(request: Request) -> Arrival:
    """Returns the arrival of a request, with the current time. The body must have been read."""
    principal = principal_of(request.headers.get("authorization"), request.headers.get("x-api-key"))
    return Arrival(time.monotonic(), principal, len(await request.body()))


def _description_of(model: ServedModel, gateway: Gateway) -> dict[str, Any]:
    identity = {"id": model.name, "object": "model", "created": gateway.created_s, "owned_by": _OWNER}
    return {**identity, "max_model_len": model.context_window_size}
