"""The documented schema of bodies that the app parses itself, for /openapi.json and /docs."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from paceline.gateway.openai.schema import ChatCompletionRequest, CompletionRequest

_REFERENCE = "#/components/schemas/{model}"


class DocumentedApp(FastAPI):
    """A FastAPI app whose document holds the request schemas beside FastAPI's own."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        document = super().openapi()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        _, definitions = models_json_schema(
            [(ChatCompletionRequest, "validation"), (CompletionRequest, "validation")], ref_template=_REFERENCE
        )
        schemas.update(definitions["$defs"])
        return document


def body_of(schema: type[BaseModel]) -> dict[str, Any]:
    """What a route says of its body."""
    reference = {"$ref": _REFERENCE.format(model=schema.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}}
