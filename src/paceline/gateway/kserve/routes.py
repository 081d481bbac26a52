"""The routes of the protocol over HTTP, and the front that they make up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from paceline.core.errors import InvalidRequestError
from paceline.gateway.http.arrival import Arrival, arrival_of
from paceline.gateway.http.body_parsing import parse_body
from paceline.gateway.http.context import Gateway, Served
from paceline.gateway.http.disconnect import until_disconnect
from paceline.gateway.http.front import Front
from paceline.gateway.http.json_response import JsonResponse
from paceline.gateway.http.openapi import body_of, error_responses
from paceline.gateway.http.routes import GENERATION_ERRORS, get
from paceline.gateway.http.streamed_response import (
    EVENT_STREAM_TYPE,
    KEEP_ALIVE_COMMENT,
    Chunks,
    StreamedResponse,
    StreamFormat,
    event,
)
from paceline.gateway.kserve.errors import ErrorResponse, error_body
from paceline.gateway.kserve.generation import generate_call, read_inputs, streamed_outputs, whole_outputs
from paceline.gateway.kserve.http_infer import BINARY_OUTPUT, LENGTH_HEADER, InferRequest, infer_response, read_request
from paceline.gateway.kserve.metadata import (
    MODEL_VERSION,
    find_model,
    is_model_ready,
    model_metadata,
    server_metadata,
)
from paceline.gateway.kserve.parameters import GenerateParameters, parse_parameters
from paceline.gateway.kserve.tensors import Tensor

_EVENTS = StreamFormat(
    media_type=EVENT_STREAM_TYPE, encode=event, error_chunk=error_body, keep_alive=KEEP_ALIVE_COMMENT
)
Handler = TypeVar("Handler", bound=Callable[..., Any])


class TritonGenerateRequest(GenerateParameters):
    """The body of POST /v2/models/NAME/generate and generate_stream. Parameters may also be within `parameters`."""

    text_input: str
    id: str | None = None
    parameters: dict[str, Any] = Field(default={})


def create_routes() -> APIRouter:
    """Returns the routes under /v2."""
    routes = APIRouter(prefix="/v2", tags=["kserve"])
    _add_health(routes)
    for path in ("/models/{name}", "/models/{name}/versions/{version}"):
        _add_model(routes, path)
    return routes


def _add_health(routes: APIRouter) -> None:
    @get(routes, "", error_body=ErrorResponse)
    async def server(gateway: Served) -> dict[str, Any]:
        return server_metadata()

    @get(routes, "/health/live", error_body=ErrorResponse, response_class=Response)
    async def live(gateway: Served) -> Response:
        return Response()

    @get(routes, "/health/ready", 400, error_body=ErrorResponse, response_class=Response)
    async def ready(gateway: Served) -> Response:
        return Response(status_code=200 if gateway.service.pool.is_ready else 400)


def _add_model(routes: APIRouter, path: str) -> None:
    """Adds the routes of a model. If the path has no version, the model's only version counts."""

    @get(routes, path, 404, error_body=ErrorResponse)
    async def metadata(request: Request, gateway: Served, name: str) -> dict[str, Any]:
        return model_metadata(gateway.service.pool, name, _version(request))

    @get(routes, f"{path}/ready", 400, 404, error_body=ErrorResponse, response_class=Response)
    async def ready(request: Request, gateway: Served, name: str) -> Response:
        return Response(status_code=200 if is_model_ready(gateway.service.pool, name, _version(request)) else 400)

    @_post(routes, f"{path}/infer", InferRequest)
    async def infer(request: Request, gateway: Served, name: str) -> Response:
        find_model(gateway.service.pool, name, _version(request))
        length = request.headers.get(LENGTH_HEADER)
        answering = _infer(gateway, name, await request.body(), length, await arrival_of(request))
        return await until_disconnect(request.receive, answering)

    @_post(routes, f"{path}/generate", TritonGenerateRequest)
    async def generate(request: Request, gateway: Served, name: str) -> Response:
        find_model(gateway.service.pool, name, _version(request))
        body = parse_body(TritonGenerateRequest, await request.body())
        return await until_disconnect(request.receive, _generate(gateway, name, body, await arrival_of(request)))

    @_post(routes, f"{path}/generate_stream", TritonGenerateRequest)
    async def generate_stream(request: Request, gateway: Served, name: str) -> Response:
        find_model(gateway.service.pool, name, _version(request))
        body = parse_body(TritonGenerateRequest, await request.body())
        return await until_disconnect(request.receive, _generate_stream(gateway, name, body, await arrival_of(request)))


def _post(routes: APIRouter, path: str, schema: type[BaseModel]) -> Callable[[Handler], Handler]:
    """Returns a decorator that makes a function answer POST."""
    responses = error_responses(ErrorResponse, *GENERATION_ERRORS)
    return routes.post(path, openapi_extra=body_of(schema), responses=responses)


def _version(request: Request) -> str | None:
    return request.path_params.get("version")


async def _infer(gateway: Gateway, name: str, data: bytes, header_length: str | None, arrival: Arrival) -> Response:
    body, tensors = read_request(data, header_length)
    parameters = {key: value for key, value in body.parameters.items() if key != BINARY_OUTPUT}
    text, settings = read_inputs(tensors, parameters)
    if settings.stream:
        message = "stream cannot be true here: use generate_stream, or ModelStreamInfer over gRPC"
        raise InvalidRequestError(message, "stream", "unsupported_value")
    answer = await gateway.service.begin(generate_call(name, text, settings, arrival))
    await answer.complete()
    return infer_response(answer.model_name, body, whole_outputs(answer, settings))


async def _generate(gateway: Gateway, name: str, body: TritonGenerateRequest, arrival: Arrival) -> Response:
    settings = _settings(body)
    if settings.stream:
        raise InvalidRequestError("stream cannot be true here: use generate_stream", "stream", "unsupported_value")
    answer = await gateway.service.begin(generate_call(name, body.text_input, settings, arrival))
    await answer.complete()
    return JsonResponse(_described(answer.model_name, body, whole_outputs(answer, settings)))


async def _generate_stream(gateway: Gateway, name: str, body: TritonGenerateRequest, arrival: Arrival) -> Response:
    settings = _settings(body).model_copy(update={"stream": True})
    answer = await gateway.service.begin(generate_call(name, body.text_input, settings, arrival))

    async def chunks() -> Chunks:
        async with aclosing(streamed_outputs(answer, settings)) as pieces:
            async for tensors in pieces:
                yield _described(answer.model_name, body, tensors)

    return await StreamedResponse.begin(chunks(), _EVENTS, gateway.config.keep_alive_s)


def _settings(body: TritonGenerateRequest) -> GenerateParameters:
    """Returns the parameters in `parameters` and beside it."""
    beside = body.model_dump(exclude={"text_input", "id", "parameters"}, exclude_unset=True)
    return parse_parameters({**body.parameters, **beside})


def _described(model_name: str, body: TritonGenerateRequest, tensors: list[Tensor]) -> dict[str, Any]:
    identity = {"model_name": model_name, "model_version": MODEL_VERSION, **({"id": body.id} if body.id else {})}
    return {**identity, **{tensor.name: tensor.values[0] for tensor in tensors}}


def _add_grpc_service(gateway: Gateway, server: Any) -> str:  # noqa: ANN401 - the package grpc is an extra
    from paceline.gateway.kserve.grpc_service import add_service

    return add_service(gateway, server)


FRONT = Front(
    name="kserve",
    paths=("/v2",),
    create_routes=create_routes,
    schemas=(InferRequest, TritonGenerateRequest),
    error_body=error_body,
    add_grpc_service=_add_grpc_service,
)
