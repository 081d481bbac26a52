"""POST /v2/models/NAME/infer: reads and writes tensors as JSON, or as bytes after the JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import Field
from starlette.responses import Response

from paceline.core.errors import InvalidRequestError
from paceline.gateway.http.body_parsing import parse_body
from paceline.gateway.http.strict_body import StrictBody
from paceline.gateway.kserve.metadata import MODEL_VERSION
from paceline.gateway.kserve.tensors import Tensor

LENGTH_HEADER = "inference-header-content-length"
MAX_TENSORS = 64
BINARY_OUTPUT = "binary_data_output"
_SIZE = "binary_data_size"


class InputTensor(StrictBody):
    """An input. Its elements are in `data`, or after the JSON if its parameters have `binary_data_size`."""

    name: str
    shape: list[int] = Field(max_length=8)
    datatype: str
    parameters: dict[str, Any] = Field(default={})
    data: list[Any] | None = None


class RequestedOutput(StrictBody):
    """An output that the client wants; with the parameter `binary_data` it comes after the JSON."""

    name: str
    parameters: dict[str, Any] = Field(default={})


class InferRequest(StrictBody):
    """The body of POST /v2/models/NAME/infer. Its parameters are those of `GenerateParameters`, and
    `binary_data_output`, with which all outputs come after the JSON."""

    id: str | None = None
    parameters: dict[str, Any] = Field(default={})
    inputs: list[InputTensor] = Field(max_length=MAX_TENSORS, fail_fast=True)
    outputs: list[RequestedOutput] | None = Field(default=None, max_length=MAX_TENSORS, fail_fast=True)


def read_request(data: bytes, header_length: str | None) -> tuple[InferRequest, list[Tensor]]:
    """Returns the request and its input tensors. `header_length` is the length of the JSON (None: all of the body).

    Raises InvalidRequestError.
    """
    length = len(data) if header_length is None else _length(header_length, len(data))
    body = parse_body(InferRequest, data[:length])
    rest = memoryview(data)[length:]
    tensors: list[Tensor] = []
    for tensor in body.inputs:
        size = tensor.parameters.get(_SIZE)
        if size is None:
            tensors.append(Tensor.from_json(tensor.name, tensor.datatype, tensor.shape, tensor.data or []))
            continue
        if type(size) is not int or not 0 <= size <= len(rest):
            raise InvalidRequestError(
                f"{_SIZE} of the input {tensor.name!r} is not in the body", _SIZE, "invalid_value"
            )
        tensors.append(Tensor.from_bytes(tensor.name, tensor.datatype, tensor.shape, rest[:size]))
        rest = rest[size:]
    if rest:
        raise InvalidRequestError(f"{len(rest)} bytes after the last input belong to none", _SIZE, "invalid_value")
    return body, tensors


def infer_response(model_name: str, body: InferRequest, tensors: list[Tensor]) -> Response:
    """Returns the response with the outputs that the client wants."""
    wanted = {output.name: output for output in body.outputs or ()}
    if unknown := set(wanted).difference(tensor.name for tensor in tensors):
        raise InvalidRequestError(f"there is no output {min(unknown)!r}", "outputs", "invalid_value")
    is_binary = bool(body.parameters.get(BINARY_OUTPUT))
    outputs: list[dict[str, Any]] = []
    binary = b""
    for tensor in tensors:
        if wanted and tensor.name not in wanted:
            continue
        described: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        asked = wanted[tensor.name].parameters.get("binary_data") if wanted else None
        if asked if asked is not None else is_binary:
            data = tensor.to_bytes()
            binary += data
            outputs.append({**described, "parameters": {_SIZE: len(data)}})
        else:
            outputs.append({**described, "data": tensor.values})
    identity = {"model_name": model_name, "model_version": MODEL_VERSION}
    head = msgspec.json.encode({**identity, **({"id": body.id} if body.id else {}), "outputs": outputs})
    if not binary:
        return Response(head, media_type="application/json")
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return Response(head + binary, media_type="application/octet-stream", headers=headers)


def _length(text: str, size: int) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 12 or int(text) > size:
        message = f"the header Inference-Header-Content-Length is {text[:20]!r}, but the body has {size} bytes"
        raise InvalidRequestError(message, LENGTH_HEADER, "invalid_value")
    return int(text)
