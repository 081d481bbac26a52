"""The HTTP app: routes, and every error in OpenAI's shape. What handlers do lies in `openai`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

import paceline
from paceline.core.errors import PacelineError
from paceline.gateway.arrival import Arrival
from paceline.gateway.disconnect import until_disconnect
from paceline.gateway.errors import ApiError, api_error_from
from paceline.gateway.gateway import Gateway
from paceline.gateway.middleware import ExchangeMiddleware, error_response
from paceline.gateway.openai.chat import create_chat_completion
from paceline.gateway.openai.completions import create_completion
from paceline.gateway.openai.parsing import Body, parse_body
from paceline.gateway.openai.schema import ChatCompletionRequest, CompletionRequest
from paceline.gateway.openapi import DocumentedApp, body_of, error_responses, get

_OWNER = "paceline"
_SMALL_BODY_BYTES = 16384


def create_app(gateway: Gateway) -> FastAPI:
    """The app of one gateway; nothing is shared between apps."""
    app = DocumentedApp(title="Paceline", version=paceline.__version__, docs_url="/docs", redoc_url=None)
    app.state.gateway = gateway
    app.include_router(_openai_routes())
    app.include_router(_operator_routes())
    app.add_exception_handler(PacelineError, _on_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_middleware(
        ExchangeMiddleware,
        metrics=gateway.http_metrics,
        max_body_size_bytes=gateway.config.max_body_size_bytes,
    )
    return app


def gateway_of(request: Request) -> Gateway:
    """The gateway that this request came to."""
    gateway: Gateway = request.app.state.gateway
    return gateway


Served = Annotated[Gateway, Depends(gateway_of)]


def _body_of(schema: type[Body]) -> Callable[[Request], Coroutine[Any, Any, Body]]:
    """A dependency that parses the body whatever content type a client claims."""

    async def parse(request: Request) -> Body:
        data = await request.body()
        if len(data) <= _SMALL_BODY_BYTES:
            return parse_body(schema, data)
        return await asyncio.to_thread(parse_body, schema, data)

    return parse


def _openai_routes() -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["openai"])
    generation = {**error_responses(400, 404, 413, 429, 500, 503), 499: {"description": "the client went away"}}

    @routes.post("/chat/completions", openapi_extra=body_of(ChatCompletionRequest), responses=generation)
    async def chat_completions(
        request: Request,
        gateway: Served,
        body: Annotated[ChatCompletionRequest, Depends(_body_of(ChatCompletionRequest))],
    ) -> Response:
        arrival = await Arrival.of(request)
        return await until_disconnect(request.receive, create_chat_completion(gateway, body, arrival))

    @routes.post("/completions", openapi_extra=body_of(CompletionRequest), responses=generation)
    async def completions(
        request: Request, gateway: Served, body: Annotated[CompletionRequest, Depends(_body_of(CompletionRequest))]
    ) -> Response:
        arrival = await Arrival.of(request)
        return await until_disconnect(request.receive, create_completion(gateway, body, arrival))

    @get(routes, "/models")
    async def models(gateway: Served) -> dict[str, Any]:
        return {"object": "list", "data": [_model(gateway)]}

    @get(routes, "/models/{name:path}", 404)
    async def model(gateway: Served, name: str) -> dict[str, Any]:
        gateway.model.check_name(name)
        return _model(gateway)

    return routes


def _model(gateway: Gateway) -> dict[str, Any]:
    """The served model; its context window is known once an engine was ready."""
    info = gateway.client.model
    window = None if info is None else info.context_window_size
    identity = {"id": gateway.model.name, "object": "model", "created": gateway.created_s, "owned_by": _OWNER}
    return {**identity, "max_model_len": window}


def _operator_routes() -> APIRouter:
    routes = APIRouter(tags=["operators"])

    @get(routes, "/health", 503)
    async def health(gateway: Served) -> JSONResponse:
        if gateway.is_ready:
            return JSONResponse({"status": "ready", "model": gateway.model.name})
        return JSONResponse({"status": "not ready", "model": gateway.model.name}, 503, {"retry-after": "1"})

    @get(routes, "/metrics")
    async def metrics(gateway: Served) -> Response:
        return Response(generate_latest(gateway.registry), media_type=CONTENT_TYPE_LATEST)

    return routes


async def _on_error(request: Request, error: Exception) -> Response:
    return error_response(request, api_error_from(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Errors of the framework: no such path, wrong method."""
    if not isinstance(error, HTTPException):
        raise error
    message = {
        404: f"there is no {request.url.path} here",
        405: f"{request.url.path} does not take {request.method}",
    }.get(error.status_code, error.detail.lower())
    return error_response(request, ApiError(error.status_code, message), dict(error.headers or {}))
