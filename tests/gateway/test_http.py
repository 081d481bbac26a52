"""What lies around the API: errors of every kind in one shape, request ids, health, metrics, the documented schema."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.gateway.server_process import PATIENCE_S, ServerProcess


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/v1/chat/completions", b"{", 400),
        ("POST", "/v1/chat/completions", b"", 400),
        ("POST", "/v1/chat/completions", b"\xff\xfe\x00", 400),
        ("POST", "/v1/completions", b"[]", 400),
        ("POST", "/v1/completions", b'{"prompt": "a", "max_tokens": NaN}', 400),
        ("POST", "/v1/completions", b"x" * (16 * 2**20 + 1), 413),
        ("GET", "/v1/chat/completions", b"", 405),
        ("DELETE", "/v1/models", b"", 405),
        ("POST", "/v1/embeddings", b"{}", 404),
        ("GET", "/", b"", 404),
    ],
)
def test_every_error_has_openais_shape_and_an_id(
    http: httpx.Client, method: str, path: str, content: bytes, status: int
) -> None:
    response = http.request(method, path, content=content)
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"] != ""
    assert response.headers["x-request-id"] != ""


def test_the_clients_request_id_comes_back(http: httpx.Client) -> None:
    headers = {"X-Request-Id": "mine-17"}
    assert http.get("/health", headers=headers).headers["x-request-id"] == "mine-17"
    assert http.get("/nowhere", headers=headers).headers["x-request-id"] == "mine-17"
    assert http.post("/v1/completions", content=b"{", headers=headers).headers["x-request-id"] == "mine-17"


def test_request_ids_are_made_and_too_long_ones_replaced(http: httpx.Client) -> None:
    ids = {http.get("/health").headers["x-request-id"] for _ in range(3)}
    ids.add(http.get("/health", headers={"X-Request-Id": "x" * 201}).headers["x-request-id"])
    assert len(ids) == 4
    assert max(map(len, ids)) == 32


def test_a_body_of_any_content_type_is_read(http: httpx.Client) -> None:
    body = b'{"prompt": "a", "max_tokens": 2}'
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert http.post("/v1/completions", content=body, headers=headers).json()["usage"]["completion_tokens"] == 2


def test_a_stream_is_server_sent_events(http: httpx.Client) -> None:
    response = http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.removesuffix("\n\n").split("\n\n")
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"


def test_health_of_a_ready_server(http: httpx.Client) -> None:
    response = http.get("/health")
    assert (response.status_code, response.json()) == (200, {"status": "ready", "model": "target"})


def test_metrics_count_what_was_done(http: httpx.Client, server: ServerProcess) -> None:
    before = server.metrics()
    answer = http.post("/v1/completions", json={"prompt": "the line", "max_tokens": 9, "temperature": 0}).json()
    after = server.metrics()
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    assert grown["paceline_generation_tokens_total"] == 9
    assert grown["paceline_prompt_tokens_total"] == answer["usage"]["prompt_tokens"]
    assert grown["paceline_request_success_total"] == 1
    assert grown["paceline_time_to_first_token_seconds_count"] == 1
    assert grown["paceline_engine_steps_total"] == answer["speculation"]["steps"]
    assert grown["paceline_spec_decode_num_draft_tokens_total"] == answer["speculation"]["drafted"]
    assert grown["paceline_spec_decode_num_accepted_tokens_total"] == answer["speculation"]["accepted"]
    assert grown["paceline_sequence_step_tokens_total"] == 9
    assert grown["paceline_sequence_steps_total"] == answer["speculation"]["steps"]
    assert grown["paceline_spec_decode_seconds_total"] > 0
    assert 1 <= after["paceline_tokens_per_step"] <= 17
    assert after["paceline_engine_up"] == 1
    assert after["paceline_num_requests_running"] == 0


def test_metrics_tell_drafters_and_sizes_apart(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", json={"prompt": "ab ab ab", "max_tokens": 30, "temperature": 0}).json()
    text = http.get("/metrics").text
    for name in answer["speculation"]["by_drafter"]:
        for metric in ("num_drafts", "num_draft_tokens", "num_accepted_tokens", "seconds"):
            assert f'paceline_spec_decode_drafter_{metric}_total{{drafter="{name}"' in text
    assert 'paceline_spec_decode_num_drafts_per_size_total{model_name="target",size="7"}' in text


def test_routes_are_counted_by_their_pattern(http: httpx.Client) -> None:
    http.get("/v1/models/default")
    http.get("/some/secret/path")
    text = http.get("/metrics").text
    assert 'paceline_http_requests_total{method="GET",route="/v1/models/{name:path}",status="200"}' in text
    assert 'route="unknown",status="404"' in text
    assert "secret" not in text


def test_the_documented_schema_is_whole(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert "/v1/chat/completions" in document["paths"]
    schemas = document["components"]["schemas"]
    assert "messages" in schemas["ChatCompletionRequest"]["properties"]
    references = {part.split('"')[0] for part in http.get("/openapi.json").text.split('"#/components/schemas/')[1:]}
    assert references <= set(schemas)
