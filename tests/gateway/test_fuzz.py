"""Malformed bodies and frames over all fronts: none may cause a status 500, keep memory, or harm the next request.

`make test-fuzz` runs these tests.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest

from paceline.config import EngineConfig, ServerConfig
from paceline.gateway.grpc import generation_pb2 as own
from paceline.gateway.kserve import open_inference_pb2 as oip
from tests.gateway.server_process import PATIENCE_S, ServerProcess

pytestmark = pytest.mark.fuzz

NUM_BODIES = 8_000
NUM_FRAMES = 2_000
NUM_FIRST = 1_000  # memory is compared from here on, when everything that happens only once has happened
MOST_GROWTH_BYTES = 20 * 2**20
REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
CHAT: Any = [{"role": "user", "content": "a"}]
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "default",
        "messages": CHAT,
        "max_tokens": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["x"],
        "logit_bias": {"5": 1},
        "logprobs": True,
        "top_logprobs": 2,
        "tools": [TOOL],
        "tool_choice": "auto",
        "stream": False,
        "speculation": {"mode": "auto", "drafters": ["suffix"]},
    },
    "/v1/completions": {"prompt": ["a"], "max_tokens": 2, "n": 2, "echo": True, "logprobs": 1, "seed": 4},
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}],
        "max_output_tokens": 2,
        "instructions": "b",
        "text": {"format": {"type": "text"}},
        "previous_response_id": None,
        "store": False,
    },
    "/v1/messages": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
        "max_tokens": 2,
        "system": "b",
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"},
        "stop_sequences": ["x"],
    },
    "/v1/messages/count_tokens": {"messages": CHAT},
    "/api/chat": {"messages": CHAT, "options": {"num_predict": 2, "temperature": 0, "stop": ["x"]}, "format": ""},
    "/api/generate": {"prompt": "a", "system": "b", "raw": False, "options": {"num_predict": 2}, "stream": False},
    "/api/show": {"model": "default"},
    "/completion": {"prompt": "a", "n_predict": 2, "logit_bias": [[5, 1.0]], "stop": ["x"], "response_fields": ["a/b"]},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "c"}], "n_predict": 2},
    "/tokenize": {"content": "a", "with_pieces": True},
    "/detokenize": {"tokens": [1, 2]},
    "/v2/models/default/infer": {
        "id": "a",
        "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["a"]}],
        "parameters": {"max_tokens": 2},
        "outputs": [{"name": "text_output", "parameters": {"binary_data": True}}],
    },
    "/v2/models/default/generate": {"text_input": "a", "parameters": {"max_tokens": 2}},
    "/v2/models/default/generate_stream": {"text_input": "a", "max_tokens": 2},
}
STRANGE: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**64), 1e308, 0.5, -0.0, 10**400),
    *("", "a", "\u0000", "\ud800", "\U0001f600" * 50, "x" * 5_000, "../../etc/passwd", "{{ 7 * 7 }}", "default"),
    *([], [[]], {}, [None], {"type": "object"}, {"type": None}, {"": ""}, [1, "a"], {"$ref": "#"}, [[1, 2], [3]]),
]


@pytest.fixture(scope="module")
def server(engine_config: EngineConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = ServerConfig(port=0, grpc_port=0)
    with ServerProcess(tmp_path_factory.mktemp("fuzz"), engine_config, settings) as process:
        yield process.wait_ready()


def mutated(source: random.Random, value: Any, depth: int = 0) -> Any:
    """Returns a value with some parts replaced, left out, repeated or nested."""
    if source.random() < 0.12:
        return source.choice(STRANGE)
    if isinstance(value, dict):
        found = {key: mutated(source, part, depth + 1) for key, part in value.items() if source.random() > 0.05}
        if source.random() < 0.05:
            found[source.choice(["wish", "", "model", "type", "\u0000"])] = source.choice(STRANGE)
        return found
    if isinstance(value, list):
        found = [mutated(source, part, depth + 1) for part in value]
        return found * source.choice([0, 1, 1, 1, 1, 2, 40])
    return value


def body_of(source: random.Random, valid: dict[str, Any]) -> bytes:
    """Returns a malformed body: wrong values, or bytes that are no JSON at all."""
    data = json.dumps(mutated(source, valid)).encode()
    match source.randrange(8):
        case 0:
            return data[: source.randrange(len(data) + 1)]
        case 1:
            changed = bytearray(data)
            for _ in range(source.randrange(1, 6)):
                changed[source.randrange(len(changed))] = source.randrange(256)
            return bytes(changed)
        case 2:
            depth = source.choice([50, 500, 100_000])
            return b'{"messages":' + b"[" * depth + b"]" * source.choice([0, depth])
        case 3:
            return source.randbytes(source.randrange(300))
        case _:
            return data


def memory_of(server: ServerProcess) -> int:
    """Returns the memory of the gateway's own process."""
    return psutil.Process(server.process.pid).memory_info().rss


def test_malformed_bodies_cause_no_error_of_the_server_and_keep_no_memory(server: ServerProcess) -> None:
    source = random.Random(17)
    paths = list(BODIES)
    statuses: Counter[int] = Counter()
    before = 0
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        for number in range(NUM_BODIES):
            if number == NUM_FIRST:
                before = memory_of(server)
            path = paths[number % len(paths)]
            content = body_of(source, BODIES[path])
            headers = {}
            if path.endswith("/infer") and source.random() < 0.3:
                headers["Inference-Header-Content-Length"] = str(source.choice([0, 1, len(content), 10**9, -1]))
            response = http.post(path, content=content, headers=headers)
            statuses[response.status_code] += 1
            assert response.status_code in (200, 400, 404), (path, content[:2000], response.text[:500])
            assert b"internal_error" not in response.content, (path, content[:2000])
            assert b"engine_error" not in response.content, (path, content[:2000])
        good = {"messages": CHAT, "max_tokens": 4, "temperature": 0}
        assert http.post("/v1/chat/completions", json=good).status_code == 200
    assert memory_of(server) - before < MOST_GROWTH_BYTES
    assert statuses[400] > NUM_BODIES / 2


def frame_of(source: random.Random, valid: bytes) -> bytes:
    """Returns a frame with wrong bytes."""
    data = bytearray(valid)
    for _ in range(source.randrange(1, 8)):
        data[source.randrange(len(data))] = source.randrange(256)
    return bytes(data[: source.randrange(1, len(data) + 1)]) if source.random() < 0.3 else bytes(data)


def test_malformed_frames_cause_no_internal_error(server: ServerProcess) -> None:
    source = random.Random(23)
    port = server.events("grpc ready")[0]["port"]
    tensor = oip.ModelInferRequest.InferInputTensor(name="text_input", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(b"a")
    valid = {
        "/paceline.v1.Generation/Generate": own.GenerateRequest(
            prompt=own.Prompt(text="a"), sampling=own.Sampling(max_tokens=2, stop=["x"], logit_bias={5: 1.0})
        ).SerializeToString(),
        "/paceline.v1.Generation/DescribeModel": own.DescribeModelRequest(model="default").SerializeToString(),
        "/inference.GRPCInferenceService/ModelInfer": oip.ModelInferRequest(
            model_name="default", inputs=[tensor], parameters={"max_tokens": oip.InferParameter(int64_param=2)}
        ).SerializeToString(),
        "/inference.GRPCInferenceService/ModelStreamInfer": oip.ModelInferRequest(
            model_name="default", inputs=[tensor], parameters={"max_tokens": oip.InferParameter(int64_param=2)}
        ).SerializeToString(),
    }
    codes: Counter[str] = Counter()
    faults: list[str] = []
    before = memory_of(server)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for number in range(NUM_FRAMES):
            method = list(valid)[number % len(valid)]
            frame = frame_of(source, valid[method])
            call: Any = channel.stream_stream(method)  # bytes in, bytes out
            try:
                list(call(iter([frame]), timeout=PATIENCE_S))
                codes["OK"] += 1
            except grpc.RpcError as error:
                codes[error.code().name] += 1
                if error.code() not in REFUSALS:
                    faults.append(f"{method} {frame!r}: {error}")
    assert faults == []
    assert codes["OK"] < NUM_FRAMES
    assert memory_of(server) - before < MOST_GROWTH_BYTES
    health = httpx.get(f"{server.url}/health", timeout=PATIENCE_S)
    assert health.status_code == 200


def test_headers_that_never_end_are_refused(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http, pytest.raises(httpx.HTTPError):
        http.get("/health", headers={"x-long": "x" * 200_000}).raise_for_status()
    assert httpx.get(f"{server.url}/health", timeout=PATIENCE_S).status_code == 200


def test_no_file_of_the_host_is_served(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        for path in ("/playground/../routes.py", "/playground/%2e%2e%2froutes.py", "/playground//etc/passwd"):
            assert http.get(path).status_code == 404
    assert Path("/etc/passwd").exists()
