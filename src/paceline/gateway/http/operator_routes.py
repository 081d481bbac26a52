"""The routes for operators and load balancers: /health and /metrics."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from paceline.gateway.http.context import Served
from paceline.gateway.http.routes import get


def create_routes() -> APIRouter:
    """Returns the routes /health and /metrics."""
    routes = APIRouter(tags=["operators"])

    @get(routes, "/health", 503)
    async def health(gateway: Served) -> JSONResponse:
        pool = gateway.service.pool
        if pool.is_ready:
            return JSONResponse({"status": "ready", "model": pool.default_model})
        return JSONResponse({"status": "not ready", "model": pool.default_model}, 503, {"retry-after": "1"})

    @get(routes, "/metrics", response_class=PlainTextResponse)
    async def metrics(gateway: Served) -> Response:
        return Response(generate_latest(gateway.registry), media_type=CONTENT_TYPE_LATEST)

    return routes
