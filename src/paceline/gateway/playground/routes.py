"""The routes of the playground, and the front that they make up. The page loads nothing from elsewhere."""

from __future__ import annotations

from importlib.resources import files
from types import MappingProxyType

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from paceline.gateway.http.errors import ApiError, openai_error_body
from paceline.gateway.http.front import GREETING, Front
from paceline.gateway.http.routes import get

_TYPES = MappingProxyType(
    {"index.html": "text/html", "app.js": "text/javascript", "style.css": "text/css", "icon.svg": "image/svg+xml"}
)
_HEADERS = MappingProxyType(
    {
        "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
)


def create_routes() -> APIRouter:
    """Returns the routes / and /playground."""
    routes = APIRouter(include_in_schema=False)
    static = files(__package__) / "static"
    contents = {name: (static / name).read_bytes() for name in _TYPES}

    def file(name: str) -> Response:
        if name not in contents:
            raise ApiError(404, f"there is no /playground/{name} here")
        return Response(contents[name], media_type=_TYPES[name], headers=dict(_HEADERS))

    @get(routes, "/")
    async def page(request: Request) -> Response:
        wants_html = "text/html" in request.headers.get("accept", "")
        return file("index.html") if wants_html else PlainTextResponse(GREETING, headers={"vary": "accept"})

    @get(routes, "/playground/{name}")
    async def part(name: str) -> Response:
        return file(name)

    return routes


FRONT = Front(name="playground", paths=("/playground",), create_routes=create_routes, error_body=openai_error_body)
