"""The routes of OpenAI's API that are served, and the front that they make up."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from paceline.gateway.http.arrival import Caller
from paceline.gateway.http.context import Gateway, Served
from paceline.gateway.http.errors import ApiError, openai_error_body
from paceline.gateway.http.front import Front
from paceline.gateway.http.openapi import ErrorBody, error_responses
from paceline.gateway.http.routes import get, post
from paceline.gateway.http.streamed_response import EVENT_STREAM_TYPE
from paceline.gateway.openai.chat import create_chat_completion
from paceline.gateway.openai.completions import create_completion
from paceline.gateway.openai.responses.handlers import ResponseHandlers
from paceline.gateway.openai.responses.schema import ResponsesRequest
from paceline.gateway.openai.schema import ChatCompletionRequest, CompletionRequest
from paceline.gateway.pool import ServedModel

_OWNER = "paceline"


def create_routes() -> APIRouter:
    """Returns the routes under /v1."""
    routes = APIRouter(prefix="/v1", tags=["openai"])
    post(routes, "/chat/completions", ChatCompletionRequest, create_chat_completion, stream_type=EVENT_STREAM_TYPE)
    post(routes, "/completions", CompletionRequest, create_completion, stream_type=EVENT_STREAM_TYPE)
    _add_responses(routes)

    @routes.post("/embeddings", include_in_schema=False)
    async def embeddings() -> None:
        raise ApiError(404, "this server computes no embeddings: use a server for embedding models", code="not_found")

    @get(routes, "/models")
    async def models(gateway: Served) -> dict[str, Any]:
        found = gateway.service.pool.models()
        return {"object": "list", "data": [_description_of(model, gateway) for model in found]}

    @get(routes, "/models/{name:path}", 404)
    async def model(gateway: Served, name: str) -> dict[str, Any]:
        return _description_of(gateway.service.pool.find_model(name), gateway)

    return routes


def _add_responses(routes: APIRouter) -> None:
    """Adds the routes of the Responses API. Each app has a store of its own."""
    handlers = ResponseHandlers()
    post(routes, "/responses", ResponsesRequest, handlers.create_response, stream_type=EVENT_STREAM_TYPE)

    @get(routes, "/responses/{response_id}", 404)
    async def response(gateway: Served, principal: Caller, response_id: str) -> dict[str, Any]:
        return handlers.response(principal.tenant, response_id)

    @get(routes, "/responses/{response_id}/input_items", 404)
    async def input_items(gateway: Served, principal: Caller, response_id: str) -> dict[str, Any]:
        return handlers.input_items(principal.tenant, response_id)

    @routes.delete("/responses/{response_id}", responses=error_responses(ErrorBody, 404))
    async def delete(gateway: Served, principal: Caller, response_id: str) -> dict[str, Any]:
        return handlers.delete_response(principal.tenant, response_id)


def _description_of(model: ServedModel, gateway: Gateway) -> dict[str, Any]:
    identity = {"id": model.name, "object": "model", "created": gateway.created_s, "owned_by": _OWNER}
    sampling = {} if model.card is None else dict(model.card.sampling)
    return {**identity, "max_model_len": model.context_window_size, "default_sampling": sampling}


FRONT = Front(
    name="openai",
    paths=("/v1",),
    create_routes=create_routes,
    schemas=(ChatCompletionRequest, CompletionRequest, ResponsesRequest),
    error_body=openai_error_body,
)
