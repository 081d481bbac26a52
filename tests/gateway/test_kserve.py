"""The Open Inference Protocol over HTTP, with a tiny model; texts are compared with those of OpenAI's API."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from paceline.core.errors import InvalidRequestError
from paceline.gateway.kserve.tensors import Tensor
from tests.gateway.server_process import PATIENCE_S, ServerProcess

PROMPT = "the riders at the front"
TEXT = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["a"]}
SETTINGS = {"max_tokens": 12, "temperature": 0}


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture(scope="module")
def expected(http: httpx.Client) -> str:
    """Returns the text that OpenAI's API gives for the prompt."""
    answer = http.post("/v1/completions", json={"prompt": PROMPT, **SETTINGS}).json()
    text: str = answer["choices"][0]["text"]
    return text


def tensor(name: str, datatype: str, *data: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [len(data)], "data": list(data)}


def bytes_of(text: str) -> bytes:
    return struct.pack("<I", len(text.encode())) + text.encode()


def outputs_of(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    return {output["name"]: output["data"] for output in response.json()["outputs"]}


def test_the_server_and_its_model_are_live_and_ready(http: httpx.Client) -> None:
    model = http.get("/v1/models").json()["data"][0]["id"]
    paths = ("/v2/health/live", "/v2/health/ready", f"/v2/models/{model}/ready", "/v2/models/default/versions/1/ready")
    for path in paths:
        assert (http.get(path).status_code, http.get(path).content) == (200, b"")
    assert http.get("/v2").json()["name"] == "paceline"
    metadata = http.get("/v2/models/default").json()
    assert (metadata["name"], metadata["versions"]) == (model, ["1"])
    assert {"name": "text_input", "datatype": "BYTES", "shape": [1]} in metadata["inputs"]
    assert metadata["outputs"] == [{"name": "text_output", "datatype": "BYTES", "shape": [1]}]
    for path in ("/v2/models/other", "/v2/models/default/versions/2", "/v2/models/other/ready"):
        assert http.get(path).status_code == 404
        assert set(http.get(path).json()) == {"error"}


@pytest.mark.parametrize(
    "inputs",
    [
        [tensor("max_tokens", "INT32", 12), tensor("temperature", "FP32", 0.0)],
        [tensor("sampling_parameters", "BYTES", json.dumps(SETTINGS))],
        [tensor("sampling_parameters", "BYTES", json.dumps({"max_tokens": "12", "temperature": "0.0"}))],
    ],
    ids=["TensorRT-LLM's tensors", "vLLM's parameters", "vLLM's parameters as texts"],
)
def test_the_names_of_tritons_backends_are_known(http: httpx.Client, expected: str, inputs: list[Any]) -> None:
    body = {"id": "mine", "inputs": [tensor("text_input", "BYTES", PROMPT), *inputs]}
    response = http.post("/v2/models/default/infer", json=body)
    assert outputs_of(response) == {"text_output": [PROMPT + expected]}
    assert (response.json()["id"], response.json()["model_version"]) == ("mine", "1")
    body["inputs"].append(tensor("exclude_input_in_output", "BOOL", True))
    assert outputs_of(http.post("/v2/models/default/versions/1/infer", json=body)) == {"text_output": [expected]}


def test_counts_and_the_reason_are_outputs_if_they_are_asked_for(http: httpx.Client) -> None:
    parameters = {**SETTINGS, "return_finish_reason": True, "return_num_input_tokens": True}
    parameters |= {"return_num_output_tokens": True, "exclude_input_in_output": True}
    body = {"inputs": [tensor("text_input", "BYTES", PROMPT)], "parameters": parameters}
    outputs = outputs_of(http.post("/v2/models/default/infer", json=body))
    assert (outputs["finish_reason"], outputs["num_output_tokens"]) == (["length"], [12])
    assert outputs["num_input_tokens"][0] > 0
    chosen = outputs_of(http.post("/v2/models/default/infer", json={**body, "outputs": [{"name": "finish_reason"}]}))
    assert chosen == {"finish_reason": ["length"]}


def test_stop_words_end_the_text(http: httpx.Client, expected: str) -> None:
    word = expected[4:6]
    inputs = [
        tensor("text_input", "BYTES", PROMPT),
        tensor("stop_words", "BYTES", "nowhere in it", word),
        tensor("exclude_input_in_output", "BOOL", True),
    ]
    outputs = outputs_of(http.post("/v2/models/default/infer", json={"inputs": inputs, "parameters": SETTINGS}))
    assert outputs["text_output"] == [expected[: expected.index(word)]]


def test_tensors_come_and_go_as_bytes_after_the_json(http: httpx.Client, expected: str) -> None:
    parts = {
        "text_input": ("BYTES", bytes_of(PROMPT)),
        "max_tokens": ("INT32", np.array([12], "<i4").tobytes()),
        "temperature": ("FP32", np.array([0.0], "<f4").tobytes()),
    }
    inputs = [
        {"name": name, "datatype": kind, "shape": [1], "parameters": {"binary_data_size": len(data)}}
        for name, (kind, data) in parts.items()
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    response = http.post(
        "/v2/models/default/infer",
        content=head + b"".join(data for _, data in parts.values()),
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    assert response.status_code == 200, response.text
    length = int(response.headers["inference-header-content-length"])
    described = json.loads(response.content[:length])
    assert described["outputs"][0]["parameters"]["binary_data_size"] == len(response.content) - length
    assert response.content[length:] == bytes_of(PROMPT + expected)


def test_generate_is_whole_and_generate_stream_brings_pieces(http: httpx.Client, expected: str) -> None:
    beside = http.post("/v2/models/default/generate", json={"text_input": PROMPT, "stop_words": "", **SETTINGS})
    within = http.post("/v2/models/default/generate", json={"text_input": PROMPT, "parameters": SETTINGS})
    assert beside.json()["text_output"] == within.json()["text_output"] == PROMPT + expected
    body = {"text_input": PROMPT, "parameters": {**SETTINGS, "stream": True}}
    streamed = http.post("/v2/models/default/generate_stream", json=body)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(block.removeprefix("data: ")) for block in streamed.text.strip().split("\n\n")]
    assert "".join(event["text_output"] for event in events) == expected
    assert len(events) > 1
    assert {event["model_version"] for event in events} == {"1"}


@pytest.mark.parametrize(
    ("path", "body", "status", "word"),
    [
        ("infer", {"inputs": []}, 400, "text_input"),
        ("infer", {"inputs": [tensor("text_input", "BYTES", "a", "b")]}, 400, "text_input"),
        ("infer", {"inputs": [tensor("text_input", "BYTES", 3)]}, 400, "text_input"),
        ("infer", {"inputs": [tensor("text_input", "BYTES", "a"), tensor("wish", "INT32", 1)]}, 400, "wish"),
        ("infer", {"inputs": [tensor("text_input", "BYTES", "a"), tensor("n", "INT32", 2)]}, 400, "n cannot"),
        ("infer", {"inputs": [tensor("text_input", "BYTES", "a")], "outputs": [{"name": "x"}]}, 400, "'x'"),
        ("infer", {"inputs": [tensor("text_input", "BYTES", "a"), tensor("stream", "BOOL", True)]}, 400, "stream"),
        ("infer", {"inputs": [{**tensor("text_input", "BYTES", "a"), "shape": [2]}]}, 400, "shape"),
        ("infer", {"inputs": [{**tensor("text_input", "STRING", "a")}]}, 400, "STRING"),
        (
            "infer",
            {"inputs": [tensor("text_input", "BYTES", "a"), tensor("max_tokens", "INT32", 0)]},
            400,
            "max_tokens",
        ),
        ("generate", {"text_input": ""}, 400, "prompt"),
        ("generate", {"parameters": {}}, 400, "text_input"),
        ("generate", {"text_input": "a", "stream": True}, 400, "generate_stream"),
        ("generate_stream", {"text_input": "a", "exclude_input_in_output": False}, 400, "exclude_input_in_output"),
    ],
)
def test_errors_have_the_protocols_form(
    http: httpx.Client, path: str, body: dict[str, Any], status: int, word: str
) -> None:
    response = http.post(f"/v2/models/default/{path}", json=body)
    assert response.status_code == status
    assert set(response.json()) == {"error"}
    assert word in response.json()["error"]


@pytest.mark.parametrize("length", ["-1", "x", "99999", "1" * 30])
def test_a_wrong_length_of_the_json_is_refused(http: httpx.Client, length: str) -> None:
    headers = {"Inference-Header-Content-Length": length}
    response = http.post("/v2/models/default/infer", content=b"{}", headers=headers)
    assert response.status_code == 400
    assert "Inference-Header-Content-Length" in response.json()["error"]


@pytest.mark.parametrize("data", [b"\x01", b"\x05\x00\x00\x00abc", b"\x01\x00\x00\x00\xff", b"\xff\xff\xff\xff"])
def test_broken_texts_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        Tensor.from_bytes("text_input", "BYTES", [1], data)


@pytest.mark.parametrize("datatype", ["BOOL", "INT8", "UINT16", "INT32", "UINT64", "FP16", "FP32", "FP64"])
def test_numbers_survive_the_way_through_bytes(datatype: str) -> None:
    values = [True, False] if datatype == "BOOL" else [1.5, 0.0] if datatype.startswith("FP") else [1, 100]
    given = Tensor.from_json("a", datatype, [2, 1], [[values[0]], [values[1]]])
    assert given.values == tuple(values)
    assert Tensor.from_bytes("a", datatype, [2, 1], given.to_bytes()) == given
