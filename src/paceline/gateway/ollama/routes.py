"""The routes of Ollama's API that are served, and the front that they make up."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from paceline.gateway.http.context import Served
from paceline.gateway.http.front import Front
from paceline.gateway.http.routes import get, post
from paceline.gateway.ollama.errors import ErrorResponse, error_body
from paceline.gateway.ollama.generation import JSON_LINES_TYPE, chat, generate
from paceline.gateway.ollama.models import list_models, list_running, show
from paceline.gateway.ollama.schema import ChatRequest, GenerateRequest, ShowRequest

GREETING = "Ollama is running"
"""What programs get at `/`: some of them look for this text to find a server with this API."""
API_VERSION = "0.12.0"
"""The version of Ollama's API that this front follows; clients compare it with the one that they need."""


def create_routes() -> APIRouter:
    """Returns the routes under /api, and the greeting at / by which programs recognize a server."""
    routes = APIRouter(tags=["ollama"])
    routes.include_router(_api_routes())

    @get(routes, "/", error_body=ErrorResponse, response_class=PlainTextResponse)
    async def greeting() -> Response:
        return PlainTextResponse(GREETING)

    return routes


def _api_routes() -> APIRouter:
    routes = APIRouter(prefix="/api")
    post(routes, "/chat", ChatRequest, chat, ErrorResponse, JSON_LINES_TYPE)
    post(routes, "/generate", GenerateRequest, generate, ErrorResponse, JSON_LINES_TYPE)
    post(routes, "/show", ShowRequest, show, ErrorResponse)

    @get(routes, "/tags", error_body=ErrorResponse)
    async def tags(gateway: Served) -> dict[str, Any]:
        return list_models(gateway)

    @get(routes, "/ps", error_body=ErrorResponse)
    async def running(gateway: Served) -> dict[str, Any]:
        return list_running(gateway)

    @get(routes, "/version", error_body=ErrorResponse)
    async def version() -> dict[str, str]:
        return {"version": API_VERSION}

    return routes


FRONT = Front(
    name="ollama",
    paths=("/api",),
    create_routes=create_routes,
    schemas=(ChatRequest, GenerateRequest, ShowRequest),
    error_body=error_body,
)
