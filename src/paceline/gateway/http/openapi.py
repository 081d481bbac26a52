"""Adds to /openapi.json and /docs what FastAPI does not know: bodies that the app parses itself, and errors."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

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
    """The body of a response that is an error, in OpenAI's form."""

    error: ErrorFields


_DESCRIPTIONS = MappingProxyType(
    {
        400: "the request cannot be honoured",
        403: "a web page or a host name that is not allowed",
        404: "the model is not served here",
        413: "the body is too large",
        429: "too many requests are waiting",
        500: "the engine failed",
        503: "the server is starting or ending, or its engine ended",
    }
)


def error_responses(error_body: type[BaseModel], *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the OpenAPI documentation of these error statuses, for a route whose errors have this form."""
    return {status: {"model": error_body, "description": _DESCRIPTIONS[status]} for status in statuses}


def body_of(schema: type[BaseModel]) -> dict[str, Any]:
    """Returns the OpenAPI documentation of a request body, for a route."""
    reference = {"$ref": _REFERENCE.format(model=schema.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}}
