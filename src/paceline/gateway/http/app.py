"""The HTTP app: it has the routes of all fronts and of operators, and turns errors into responses."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

import paceline
from paceline.core.errors import PacelineError
from paceline.gateway.http import operator_routes
from paceline.gateway.http.context import Gateway
from paceline.gateway.http.errors import ApiError, api_error_from
from paceline.gateway.http.front import Front
from paceline.gateway.http.middleware import ExchangeMiddleware, error_response
from paceline.gateway.http.openapi import DocumentedApp
from paceline.gateway.http.origin_check import OriginCheck, is_loopback_name


def create_app(gateway: Gateway, fronts: Sequence[Front]) -> FastAPI:
    """Returns the app of one gateway with these fronts; nothing is shared between apps."""
    schemas = [schema for front in fronts for schema in front.schemas]
    app = DocumentedApp(schemas, title="Paceline", version=paceline.__version__, docs_url="/docs", redoc_url=None)
    app.state.gateway = gateway
    for front in fronts:
        app.include_router(front.create_routes())
    app.include_router(operator_routes.create_routes())
    app.add_exception_handler(PacelineError, _on_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    _add_middleware(app, gateway, fronts)
    return app


def _add_middleware(app: FastAPI, gateway: Gateway, fronts: Sequence[Front]) -> None:
    """Adds the layers around the routes, from the innermost to the outermost."""
    config = gateway.config
    app.add_middleware(
        OriginCheck,
        is_loopback=is_loopback_name(config.host),
        allowed_origins=config.cors_origins,
        allowed_hosts=config.allowed_hosts,
    )
    app.add_middleware(
        ExchangeMiddleware, fronts=fronts, board=gateway.board, max_body_size_bytes=config.max_body_size_bytes
    )
    if config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(config.cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
        )


async def _on_error(request: Request, error: Exception) -> Response:
    return error_response(request, api_error_from(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Answers errors of the framework, such as an unknown path or a wrong method."""
    if not isinstance(error, HTTPException):
        raise error
    path = request.scope["path"]
    message = {
        404: f"there is no {path} here",
        405: f"{path} does not accept {request.method}",
    }.get(error.status_code, error.detail.lower())
    return error_response(request, ApiError(error.status_code, message), dict(error.headers or {}))
