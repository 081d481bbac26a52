"""The routes of llama-server's API that are served, and the front that they make up."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from paceline.gateway.http.context import Served
from paceline.gateway.http.front import Front
from paceline.gateway.http.routes import get, post
from paceline.gateway.http.streamed_response import EVENT_STREAM_TYPE
from paceline.gateway.llama_server.completion import complete, infill
from paceline.gateway.llama_server.errors import ErrorResponse, error_body
from paceline.gateway.llama_server.properties import detokenize, props, slots, tokenize
from paceline.gateway.llama_server.schema import (
    DetokenizeRequest,
    InfillRequest,
    NativeCompletionRequest,
    TokenizeRequest,
)

_PATHS = ("/completion", "/completions", "/infill", "/tokenize", "/detokenize", "/props", "/slots")


def create_routes() -> APIRouter:
    """Returns the routes."""
    routes = APIRouter(tags=["llama-server"])
    post(routes, "/completion", NativeCompletionRequest, complete, ErrorResponse, EVENT_STREAM_TYPE)
    post(routes, "/completions", NativeCompletionRequest, complete, ErrorResponse, EVENT_STREAM_TYPE)
    post(routes, "/infill", InfillRequest, infill, ErrorResponse, EVENT_STREAM_TYPE)
    post(routes, "/tokenize", TokenizeRequest, tokenize, ErrorResponse)
    post(routes, "/detokenize", DetokenizeRequest, detokenize, ErrorResponse)

    @get(routes, "/props", error_body=ErrorResponse)
    async def properties(gateway: Served) -> dict[str, Any]:
        return props(gateway)

    @get(routes, "/slots", error_body=ErrorResponse)
    async def places(gateway: Served) -> list[dict[str, Any]]:
        return slots(gateway)

    return routes


FRONT = Front(
    name="llama-server",
    paths=_PATHS,
    create_routes=create_routes,
    schemas=(NativeCompletionRequest, InfillRequest, TokenizeRequest, DetokenizeRequest),
    error_body=error_body,
)
