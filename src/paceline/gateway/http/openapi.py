"""What /openapi.json and /docs say of routes: bodies that the app parses itself, and the errors that may come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

Handler = TypeVar("Handler", bound=Callable[..., Any])

_REFERENCE = "#/components/schemas/{model}"


class DocumentedApp(FastAPI):
    """A FastAPI app whose document holds the schemas of bodies that it parses itself beside FastAPI's own."""

    def __init__(self, bodies: Iterable[type[BaseModel]], **options: Any) -> None:  # noqa: ANN401 - FastAPI's
        super().__init__(**options)
        self._bodies = tuple(bodies)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        document = super().openapi()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        _, definitions = models_json_schema([(body, "validation") for body in self._bodies], ref_template=_REFERENCE)
        schemas.update(definitions["$defs"])
        return document


class ErrorFields(BaseModel):
    """Why a request was refused or failed. `param` is the name of a field, `code` a stable word for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of every response that is an error."""

    error: ErrorFields


_DESCRIPTIONS = MappingProxyType(
    {
        400: "the request cannot be honoured",
        404: "no such model",
        413: "the body is too large",
        429: "too many requests wait",
        500: "the engine failed",
        503: "the server is starting or ending, or its engine ended",
    }
)


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns what a route documents of these statuses."""
    return {status: {"model": ErrorBody, "description": _DESCRIPTIONS[status]} for status in statuses}


def get(routes: APIRouter, path: str, *error_statuses: int) -> Callable[[Handler], Handler]:
    """Returns a decorator that makes a function answer GET, which is documented, and HEAD."""

    def register(handler: Handler) -> Handler:
        routes.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)(handler)
        return routes.get(path, responses=error_responses(*error_statuses))(handler)  # for the document

    return register


def body_of(schema: type[BaseModel]) -> dict[str, Any]:
    """What a route says of its body."""
    reference = {"$ref": _REFERENCE.format(model=schema.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}}
