"""The routes of OpenAI's API that are served, and the front that they make up."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from paceline.gateway.http.context import Gateway, Served
from paceline.gateway.http.errors import openai_error_body
from paceline.gateway.http.front import Front
from paceline.gateway.http.routes import get, post
from paceline.gateway.openai.chat import create_chat_completion
from paceline.gateway.openai.completions import create_completion
from paceline.gateway.openai.schema import ChatCompletionRequest, CompletionRequest
from paceline.gateway.pool import ServedModel

_OWNER = "paceline"


def create_routes() -> APIRouter:
    """Returns the routes under /v1."""
    routes = APIRouter(prefix="/v1", tags=["openai"])
    post(routes, "/chat/completions", ChatCompletionRequest, create_chat_completion)
    post(routes, "/completions", CompletionRequest, create_completion)

    @get(routes, "/models")
    async def models(gateway: Served) -> dict[str, Any]:
        found = gateway.service.pool.models()
        return {"object": "list", "data": [_description_of(model, gateway) for model in found]}

    @get(routes, "/models/{name:path}", 404)
    async def model(gateway: Served, name: str) -> dict[str, Any]:
        return _description_of(gateway.service.pool.find_model(name), gateway)

    return routes


def _description_of(model: ServedModel, gateway: Gateway) -> dict[str, Any]:
    identity = {"id": model.name, "object": "model", "created": gateway.created_s, "owned_by": _OWNER}
    sampling = {} if model.card is None else dict(model.card.sampling)
    return {**identity, "max_model_len": model.context_window_size, "default_sampling": sampling}


FRONT = Front(
    name="openai",
    paths=("/v1",),
    create_routes=create_routes,
    schemas=(ChatCompletionRequest, CompletionRequest),
    error_body=openai_error_body,
)
