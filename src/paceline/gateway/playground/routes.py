"""The routes of the playground, and the front that they make up. The page loads nothing from elsewhere."""

from __future__ import annotations

from importlib.resources import files
from types import MappingProxyType

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from paceline.gateway.http.errors import ApiError, openai_error_body
from paceline.gateway.http.front import Front
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
        "vary": "accept",
    }
)


class HtmlRoute(APIRoute):
    """A route for requests that ask for HTML. It leaves all others to the routes after it."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Returns whether the route answers a request, as Starlette asks it."""
        wants_html = "text/html" in Headers(scope=scope).get("accept", "")
        return super().matches(scope) if wants_html else (Match.NONE, {})


def create_routes() -> APIRouter:
    """Returns the routes / for browsers, and /playground."""
    routes = APIRouter(include_in_schema=False)
    for_browsers = APIRouter(include_in_schema=False, route_class=HtmlRoute)
    static = files(__package__) / "static"
    contents = {name: (static / name).read_bytes() for name in _TYPES}

    def file(name: str) -> Response:
        if name not in contents:
            raise ApiError(404, f"there is no /playground/{name} here")
        return Response(contents[name], media_type=_TYPES[name], headers=dict(_HEADERS))

    @get(for_browsers, "/")
    async def page() -> Response:
        return file("index.html")

    @get(routes, "/playground/{name}")
    async def part(name: str) -> Response:
        return file(name)

    routes.include_router(for_browsers)
    return routes


FRONT = Front(name="playground", paths=("/playground",), create_routes=create_routes, error_body=openai_error_body)
