"""Triton's official Python client over HTTP and gRPC, whole and streamed, before the Open Inference Protocol."""

from __future__ import annotations

import queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.clients.questions import TIMEOUT_S

PROMPT = "def add(first, second):\n    return"


def inputs_of(module: Any, **tensors: Any) -> list[Any]:
    kinds = {bool: "BOOL", int: "INT32", float: "FP32", str: "BYTES"}
    types = {bool: np.bool_, int: np.int32, float: np.float32, str: np.object_}
    made = []
    for name, value in tensors.items():
        tensor = module.InferInput(name, [1], kinds[type(value)])
        tensor.set_data_from_numpy(np.array([value], types[type(value)]))
        made.append(tensor)
    return made


def settings(**tensors: Any) -> dict[str, Any]:
    return {"text_input": PROMPT, "max_tokens": 12, "temperature": 0.0, "exclude_input_in_output": True, **tensors}


@pytest.fixture(scope="module")
def http_client(server_url: str) -> Any:
    address = server_url.removesuffix("/v1").removeprefix("http://")
    return triton_http.InferenceServerClient(address, network_timeout=TIMEOUT_S)


@pytest.fixture(scope="module")
def grpc_client(grpc_address: str) -> Any:
    return triton_grpc.InferenceServerClient(grpc_address)


@pytest.fixture(scope="module")
def expected(http_client: Any) -> str:
    result = http_client.infer("default", inputs_of(triton_http, **settings()))
    text: str = result.as_numpy("text_output")[0].decode()
    return text


@pytest.mark.parametrize("name", ["http_client", "grpc_client"])
def test_the_server_is_live_and_ready(request: pytest.FixtureRequest, name: str) -> None:
    client = request.getfixturevalue(name)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("default")
    assert client.get_server_metadata() is not None
    assert "text_input" in str(client.get_model_metadata("default"))


def test_both_ways_give_the_same_text(grpc_client: Any, expected: str) -> None:
    assert "first + second" in expected
    result = grpc_client.infer("default", inputs_of(triton_grpc, **settings()))
    assert result.as_numpy("text_output")[0].decode() == expected


def test_outputs_come_as_json_too(http_client: Any, expected: str) -> None:
    outputs = [triton_http.InferRequestedOutput("text_output", binary_data=False)]
    result = http_client.infer("default", inputs_of(triton_http, **settings()), outputs=outputs)
    assert result.as_numpy("text_output")[0] == expected


def test_a_stream_brings_the_text_in_pieces(grpc_client: Any, expected: str) -> None:
    responses: queue.Queue[tuple[Any, Any]] = queue.Queue()
    grpc_client.start_stream(lambda result, error: responses.put((result, error)))
    tensors = settings(stream=True)
    del tensors["exclude_input_in_output"]
    grpc_client.async_stream_infer(
        "default", inputs_of(triton_grpc, **tensors), request_id="mine", enable_empty_final_response=True
    )
    pieces = []
    while True:
        result, error = responses.get(timeout=TIMEOUT_S)
        assert error is None
        response = result.get_response()
        assert response.id == "mine"
        if response.parameters["triton_final_response"].bool_param:
            break
        pieces.append(result.as_numpy("text_output")[0].decode())
    grpc_client.stop_stream()
    assert len(pieces) > 1
    assert "".join(pieces) == expected


@pytest.mark.parametrize("name", ["http_client", "grpc_client"])
def test_errors_are_those_of_the_client(request: pytest.FixtureRequest, name: str) -> None:
    client = request.getfixturevalue(name)
    module = triton_http if name == "http_client" else triton_grpc
    with pytest.raises(InferenceServerException, match="gpt-9"):
        client.infer("gpt-9", inputs_of(module, **settings()))
    with pytest.raises(InferenceServerException, match="temperature"):
        client.infer("default", inputs_of(module, **settings(temperature=1000.0)))
