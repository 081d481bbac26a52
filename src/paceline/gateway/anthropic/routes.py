"""The routes of Anthropic's API that are served, and the front that they make up."""

from __future__ import annotations

from fastapi import APIRouter

from paceline.gateway.anthropic.errors import ErrorResponse, error_body
from paceline.gateway.anthropic.messages import count_tokens, create_message
from paceline.gateway.anthropic.schema import MessagesRequest, PromptFields
from paceline.gateway.http.front import Front
from paceline.gateway.http.routes import post
from paceline.gateway.http.streamed_response import EVENT_STREAM_TYPE


def create_routes() -> APIRouter:
    """Returns the routes under /v1/messages."""
    routes = APIRouter(prefix="/v1/messages", tags=["anthropic"])
    post(routes, "", MessagesRequest, create_message, ErrorResponse, EVENT_STREAM_TYPE)
    post(routes, "/count_tokens", PromptFields, count_tokens, ErrorResponse)
    return routes


FRONT = Front(
    name="anthropic",
    paths=("/v1/messages",),
    create_routes=create_routes,
    schemas=(MessagesRequest, PromptFields),
    error_body=error_body,
)
