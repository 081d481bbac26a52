"""Adds to /openapi.json and /docs what FastAPI does not know: bodies that the app parses itself, and errors."""

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
    """A FastAPI app whose OpenAPI document also has the schemas of the bodies that the app parses itself."""

    def __init__(self, bodies: Iterable[type[BaseModel]], **options: Any) -> None:  # noqa: ANN401 - FastAPI's
        super().__init__(**options)
        self._bodies = tuple(bodies)

    def openapi(self) -> dict[str, Any]:
        """Returns the OpenAPI document."""
        document = super().openapi()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        _, definitions = models_json_schema([(body, "validation") for body in self._bodies], ref_template=_REFERENCE)
        schemas.update(definitions["$defs"])
        return document


class ErrorFields(BaseModel):
    """Why a request was refused or failed. `param` names the field that caused it; programs can rely on `code`."""

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
        404: "the model is not served here",
        413: "the body is too large",
        429: "too many requests are waiting",
        500: "the engine failed",
        503: "the server is starting or ending, or its engine ended",
    }
)


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the OpenAPI documentation of these error statuses, for a route."""
    return {status: {"model": ErrorBody, "description": _DESCRIPTIONS[status]} for status in statuses}


def get(routes: APIRouter, path: str, *error_statuses: int) -> Callable[[Handler], Handler]:
    """Returns a decorator that makes a function answer GET and HEAD. Only GET is documented."""

    def register(handler: Handler) -> Handler:
        routes.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)(handler)
        return routes.get(path, responses=error_responses(*error_statuses))(handler)  # for the document

    return register


def body_of(schema: type[BaseModel]) -> dict[str, Any]:
    """Returns the OpenAPI documentation of a request body, for a route."""
    reference = {"$ref": _REFERENCE.format(model=schema.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}}
