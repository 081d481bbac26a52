"""The protocol over gRPC, with Triton's ModelStreamInfer, whose requests are answered side by side."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from types import MappingProxyType
from typing import Any

import grpc.aio

from paceline.core.errors import InvalidRequestError, PacelineError
from paceline.gateway.grpc.arrival import arrival_of
from paceline.gateway.grpc.exchange import Context
from paceline.gateway.http.context import Gateway
from paceline.gateway.http.errors import api_error_from
from paceline.gateway.kserve import open_inference_pb2 as messages
from paceline.gateway.kserve import open_inference_pb2_grpc as service
from paceline.gateway.kserve.generation import generate_call, read_inputs, streamed_outputs, whole_outputs
from paceline.gateway.kserve.http_infer import MAX_TENSORS
from paceline.gateway.kserve.metadata import (
    MODEL_VERSION,
    find_model,
    is_model_ready,
    model_metadata,
    server_metadata,
)
from paceline.gateway.kserve.tensors import BYTES, Tensor

_LOGGER = logging.getLogger(__name__)
SERVICE_NAME = "inference.GRPCInferenceService"
_FINAL = "triton_final_response"
_EMPTY_FINAL = "triton_enable_empty_final_response"
_CONTENTS = MappingProxyType(
    {
        "BOOL": "bool_contents",
        **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
        "INT64": "int64_contents",
        **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
        "UINT64": "uint64_contents",
        "FP32": "fp32_contents",
        "FP64": "fp64_contents",
        BYTES: "bytes_contents",
    }
)
"""The list of a tensor's elements for each datatype."""
_MAX_OPEN = 128  # requests of a stream that are answered at a time, and responses that wait for a slow client


def add_service(gateway: Gateway, server: grpc.aio.Server) -> str:
    """Adds the service to a server and returns its name."""
    service.add_GRPCInferenceServiceServicer_to_server(_Servicer(gateway), server)  # type: ignore[no-untyped-call]
    return SERVICE_NAME


class _Servicer(service.GRPCInferenceServiceServicer):
    """The methods of the service. Errors are exceptions; the interceptor translates them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def ServerLive(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802 - the protocol's names
        return messages.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        return messages.ServerReadyResponse(ready=self._gateway.service.pool.is_ready)

    async def ModelReady(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        is_ready = is_model_ready(self._gateway.service.pool, request.name, request.version)
        return messages.ModelReadyResponse(ready=is_ready)

    async def ServerMetadata(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        return messages.ServerMetadataResponse(**server_metadata())

    async def ModelMetadata(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        return messages.ModelMetadataResponse(
            **model_metadata(self._gateway.service.pool, request.name, request.version)
        )

    async def ModelInfer(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        async with aclosing(self._responses(request, context, is_whole=True)) as responses:
            return await anext(responses)

    async def ModelStreamInfer(self, request: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:  # noqa: N802
        """Yields the responses to all requests as they come. An error of a request does not end the others."""
        ready: asyncio.Queue[Any] = asyncio.Queue(maxsize=_MAX_OPEN)
        reading = asyncio.create_task(self._answer_all(request, context, ready))
        try:
            while (response := await ready.get()) is not None:
                yield response
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _answer_all(self, requests: AsyncIterator[Any], context: Context, ready: asyncio.Queue[Any]) -> None:
        """Answers each request in a task of its own; puts None at the end."""
        places = asyncio.Semaphore(_MAX_OPEN)
        try:
            async with asyncio.TaskGroup() as group:
                async for request in requests:
                    await places.acquire()
                    answering = group.create_task(self._answer_one(request, context, ready))
                    answering.add_done_callback(lambda _: places.release())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            task = asyncio.current_task()
            if task is None or not task.cancelling():  # when the call is cancelled, nobody empties the queue
                await ready.put(None)

    async def _answer_one(self, request: Any, context: Context, ready: asyncio.Queue[Any]) -> None:  # noqa: ANN401
        try:
            async with aclosing(self._responses(request, context, is_whole=False)) as responses:
                async for response in responses:
                    await ready.put(messages.ModelStreamInferResponse(infer_response=response))
        except Exception as error:
            if not isinstance(error, PacelineError):
                _LOGGER.exception("a request of a stream failed")
            # The client finds its request by the id.
            response = messages.ModelInferResponse(model_name=request.model_name, id=request.id)
            message = str(api_error_from(error))
            await ready.put(messages.ModelStreamInferResponse(error_message=message, infer_response=response))

    async def _responses(self, request: Any, context: Context, *, is_whole: bool) -> AsyncGenerator[Any, None]:  # noqa: ANN401
        """Yields one response, or one for each piece of the answer if a stream asks for it."""
        find_model(self._gateway.service.pool, request.model_name, request.model_version)
        parameters = {name: _parameter(value) for name, value in request.parameters.items()}
        wants_empty_final = bool(parameters.pop(_EMPTY_FINAL, False))
        text, settings = read_inputs(_tensors(request), parameters)
        if settings.stream and is_whole:
            message = "stream cannot be true here: use ModelStreamInfer"
            raise InvalidRequestError(message, "stream", "unsupported_value")
        arrival = arrival_of(context, request.ByteSize())
        answer = await self._gateway.service.begin(generate_call(request.model_name, text, settings, arrival))
        if not settings.stream:
            await answer.complete()
            yield _response(request, answer.model_name, whole_outputs(answer, settings), is_final=not wants_empty_final)
        else:
            async with aclosing(streamed_outputs(answer, settings)) as pieces:
                async for tensors in pieces:
                    is_last = answer.choices[0].finish_reason is not None
                    is_final = is_last and not wants_empty_final
                    yield _response(request, answer.model_name, tensors, is_final=is_final)
        if wants_empty_final:
            yield _response(request, answer.model_name, [], is_final=True)


def _response(request: Any, model_name: str, tensors: list[Tensor], *, is_final: bool) -> Any:  # noqa: ANN401
    """Returns a response with the outputs that the client wants, as bytes."""
    wanted = {output.name for output in request.outputs}
    if unknown := wanted.difference(tensor.name for tensor in tensors) if tensors else set():
        raise InvalidRequestError(f"there is no output {min(unknown)!r}", "outputs", "invalid_value")
    chosen = [tensor for tensor in tensors if not wanted or tensor.name in wanted]
    return messages.ModelInferResponse(
        model_name=model_name,
        model_version=MODEL_VERSION,
        id=request.id,
        parameters={_FINAL: messages.InferParameter(bool_param=is_final)},
        outputs=[
            messages.ModelInferResponse.InferOutputTensor(
                name=tensor.name, datatype=tensor.datatype, shape=list(tensor.shape)
            )
            for tensor in chosen
        ],
        raw_output_contents=[tensor.to_bytes() for tensor in chosen],
    )


def _tensors(request: Any) -> list[Tensor]:  # noqa: ANN401
    """Returns the inputs, from bytes or from lists; raises InvalidRequestError."""
    if len(request.inputs) > MAX_TENSORS:
        raise InvalidRequestError(f"there are more than {MAX_TENSORS} inputs", "inputs", "invalid_value")
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        message = f"raw_input_contents has {len(raw)} entries for {len(request.inputs)} inputs"
        raise InvalidRequestError(message, "raw_input_contents", "invalid_value")
    if raw:
        pairs = zip(request.inputs, raw, strict=True)
        return [Tensor.from_bytes(one.name, one.datatype, list(one.shape), data) for one, data in pairs]
    return [Tensor.from_json(one.name, one.datatype, list(one.shape), _contents(one)) for one in request.inputs]


def _contents(tensor: Any) -> list[Any]:  # noqa: ANN401
    field = _CONTENTS.get(tensor.datatype)
    values = list(getattr(tensor.contents, field)) if field is not None else []
    if tensor.datatype != BYTES:
        return values
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError:
        message = f"the tensor {tensor.name!r} cannot be read: an element is not text in UTF-8"
        raise InvalidRequestError(message, tensor.name, "invalid_value") from None


def _parameter(value: Any) -> Any:  # noqa: ANN401
    chosen = value.WhichOneof("parameter_choice")
    return None if chosen is None else getattr(value, chosen)
