"""Tests what surrounds the API: errors in one form, request ids, health, metrics and the documented schema."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator

import httpx
import pytest

from tests.gateway.server_process import PATIENCE_S, ServerProcess, wait_until


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
        ("POST", "/v1/nothing", b"{}", 404),
        ("GET", "/nowhere", b"", 404),
        ("GET", "/playground/nothing", b"", 404),
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


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "1" * 10**7}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "1" * 10**7}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "1" * 40_000}] * 250}),
    ],
    ids=["prompt", "content", "messages"],
)
def test_a_text_far_beyond_the_context_is_refused_by_what_it_has_at_least(
    http: httpx.Client, path: str, body: dict[str, object]
) -> None:
    response = http.post(path, json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", next(iter(body)))
    assert re.match(
        r"the prompt has at least \d+ tokens, which leaves no room .* window of 256 tokens", error["message"]
    )


def test_no_other_key_is_told_what_is_in_the_prefix_cache(http: httpx.Client) -> None:
    body = {"prompt": "the riders at the front of the line do the work and the others follow", "max_tokens": 2}

    def num_cached(**headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        response = http.post("/v1/completions", json=body, headers=named)
        return response.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert num_cached(authorization="Bearer owner") == 0
    assert num_cached(authorization="Bearer guesser") == 0
    assert num_cached(x_api_key="another") == 0
    assert num_cached() == 0
    assert num_cached(authorization="Bearer owner") > 0
    assert num_cached(x_api_key="owner") > 0


def test_an_unknown_drafter_is_refused_by_its_name(http: httpx.Client) -> None:
    response = http.post("/v1/completions", json={"prompt": "a", "speculation": {"drafters": ["ngram", "oracle"]}})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "speculation.drafters"
    assert error["message"].startswith("'oracle' is not a drafter; known are: ")


def test_a_stream_is_server_sent_events(http: httpx.Client) -> None:
    response = http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.removesuffix("\n\n").split("\n\n")
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models", "/v1/models/default", "/openapi.json"])
def test_what_can_be_got_can_be_asked_for_its_head(http: httpx.Client, path: str) -> None:
    whole, head = http.get(path), http.head(path)
    assert (whole.status_code, head.status_code, head.content) == (200, 200, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]


def test_the_log_says_why_a_request_was_refused(http: httpx.Client, server: ServerProcess) -> None:
    def logged(path: str, content: str) -> tuple[object, ...]:
        """Sends a request with this body; returns the status, the error and the field in its log line."""
        name = f"refused-{uuid.uuid4()}"
        http.post(path, content=content, headers={"x-request-id": name})
        [line] = wait_until(
            lambda: [line for line in server.events("request") if line["request_id"] == name], "the request is logged"
        )
        return tuple(line.get(field) for field in ("status", "error", "param"))

    assert logged("/v1/completions", '{"prompt": "a", "top_p": 7}') == (400, "invalid_value", "top_p")
    assert logged("/v1/completions", '{"prompt": "a", "colour": 1}') == (400, "unknown_parameter", "colour")
    assert logged("/v1/completions", "{") == (400, "invalid_request_error", None)
    assert logged("/v1/completions", '{"prompt": "a", "model": "b"}') == (404, "model_not_found", "model")
    assert logged("/nowhere", "") == (404, "invalid_request_error", None)
    assert logged("/v1/completions", '{"prompt": "a", "max_tokens": 1}') == (200, None, None)
    secret = '{"messages": [{"role": "user", "content": {"a": "a secret of the client"}}]}'
    assert logged("/v1/chat/completions", secret) == (400, "invalid_value", "messages[0].content")
    assert "a secret of the client" not in "".join(server.log)


def test_health_of_a_ready_server(http: httpx.Client) -> None:
    response = http.get("/health")
    assert (response.status_code, response.json()) == (200, {"status": "ready", "model": "target"})
    response = http.head("/health")
    assert (response.status_code, response.content) == (200, b"")


def test_more_messages_than_the_context_window_has_tokens_are_refused_unread(http: httpx.Client) -> None:
    response = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": ""}] * 50_000})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert error["message"].startswith("the chat has 50000 messages, which leaves no room for an answer")


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
    assert 'paceline_spec_decode_num_drafts_per_size_total{engine="0",model_name="target",size="7"}' in text


def test_routes_are_counted_by_their_pattern(http: httpx.Client) -> None:
    http.get("/v1/models/default")
    http.get("/some/secret/path")
    text = http.get("/metrics").text
    assert 'paceline_http_requests_total{method="GET",route="/v1/models/{name:path}",status="200"}' in text
    assert 'route="unknown",status="404"' in text
    assert "secret" not in text


@pytest.mark.parametrize("path", ["/health", "/v1/models/default", "/v1/completions", "/nowhere"])
def test_invented_methods_make_no_metrics(http: httpx.Client, path: str) -> None:
    assert [http.request(f"INVENTED{number}", path).status_code for number in range(3)] == [
        404 if path == "/nowhere" else 405
    ] * 3
    text = http.get("/metrics").text
    assert "INVENTED" not in text
    assert 'paceline_http_requests_total{method="unknown",route=' in text


def test_known_methods_are_counted_by_their_name(http: httpx.Client) -> None:
    assert http.delete("/health").status_code == 405
    assert 'paceline_http_requests_total{method="DELETE",route="/health",status="405"} 1.0' in http.get("/metrics").text


TOO_LARGE = (2**31, 2**63, 2**64)


@pytest.mark.parametrize("value", TOO_LARGE)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_whole_numbers_beyond_all_bounds_are_refused(
    http: httpx.Client, server: ServerProcess, value: int, is_streamed: bool
) -> None:
    engine = server.engine_process_id
    fields: list[dict[str, object]] = [
        {name: value} for name in ("max_tokens", "min_tokens", "top_k", "n", "best_of", "logprobs", "priority")
    ]
    fields += [{"stop_token_ids": [value]}, {"logit_bias": {str(value): 1}}, {"prompt": [value]}]
    for field in (*fields, {"speculation": {"max_window": value}}):
        answer = http.post("/v1/completions", json={"prompt": "a", "stream": is_streamed, **field})
        assert answer.status_code == 400, field
        assert answer.json()["error"]["param"].startswith(next(iter(field)))
    for name in ("max_completion_tokens", "top_logprobs"):
        body = {"messages": [{"role": "user", "content": "a"}], "logprobs": True, "stream": is_streamed, name: value}
        answer = http.post("/v1/chat/completions", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)
    assert http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2}).status_code == 200
    assert server.engine_process_id == engine


@pytest.mark.parametrize("seed", [2**64 - 1, 2**63, -(2**63)])
def test_seeds_of_64_bits_are_honoured(http: httpx.Client, seed: int) -> None:
    body = {"prompt": "a", "max_tokens": 20, "ignore_eos": True, "seed": seed}
    texts = [http.post("/v1/completions", json=body).json()["choices"][0]["text"] for _ in range(2)]
    assert texts[0] == texts[1]


def test_min_tokens_that_the_context_has_no_room_for_are_refused(http: httpx.Client) -> None:
    body = {"prompt": [65] * 56, "max_tokens": 1000, "ignore_eos": True}
    refused = http.post("/v1/completions", json={**body, "min_tokens": 201})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "min_tokens")
    assert "at most 200 tokens may follow" in refused.json()["error"]["message"]
    answer = http.post("/v1/completions", json={**body, "min_tokens": 200}).json()
    assert answer["usage"]["completion_tokens"] == 200


def test_a_key_drafts_from_what_it_was_told_and_no_other_does(http: httpx.Client) -> None:
    body = {
        "prompt": "the riders at the front of the line",
        "max_tokens": 60,
        "temperature": 0.9,
        "seed": 11,
        "ignore_eos": True,
        "speculation": {"drafters": ["suffix"]},
        "user": "one and the same",
    }

    def ask(key: str) -> tuple[str, int]:
        """Returns the answer, and how many of its tokens a draft had guessed."""
        answer = http.post("/v1/completions", json=body, headers={"Authorization": f"Bearer {key}"}).json()
        return answer["choices"][0]["text"], answer["speculation"]["accepted"]

    text, num_cold = ask("first key")
    assert ask("second key") == (text, num_cold)
    again, num_warm = ask("first key")
    assert again == text
    assert num_warm > num_cold + 20


def test_the_documented_schema_is_whole(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert "/v1/chat/completions" in document["paths"]
    for path in ("/v1/chat/completions", "/v1/completions"):
        assert {"200", "400", "404", "413", "429", "500", "503"} <= document["paths"][path]["post"]["responses"].keys()
    assert "404" in document["paths"]["/v1/models/{name}"]["get"]["responses"]
    assert "503" in document["paths"]["/health"]["get"]["responses"]
    schemas = document["components"]["schemas"]
    assert set(schemas["ErrorFields"]["properties"]) == {"message", "type", "param", "code"}
    assert "messages" in schemas["ChatCompletionRequest"]["properties"]
    references = {part.split('"')[0] for part in http.get("/openapi.json").text.split('"#/components/schemas/')[1:]}
    assert references <= set(schemas)


def test_hostile_bodies_are_refused_for_their_first_fault(http: httpx.Client) -> None:
    many = http.post("/v1/chat/completions", content=b'{"messages":[' + b"0," * 300_000 + b"0]}")
    assert many.status_code == 400
    assert many.json()["error"]["param"] == "messages[0]"
    keys = b",".join(b'"k%d":0' % number for number in range(100_000))
    unknown = http.post("/v1/completions", content=b'{"prompt":"a",' + keys + b"}")
    assert unknown.status_code == 400
    assert unknown.json()["error"] == {
        "message": "k0 is not a field of this request: remove it or correct its name",
        "type": "invalid_request_error",
        "param": "k0",
        "code": "unknown_parameter",
    }


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/metrics"])
def test_a_wrong_method_is_told_all_right_ones(path: str, http: httpx.Client) -> None:
    response = http.post(path)
    assert response.status_code == 405
    assert {*response.headers["allow"].split(", ")} == {"GET", "HEAD"}


def test_a_browser_gets_the_playground_and_a_program_ollamas_greeting(http: httpx.Client) -> None:
    program = http.get("/")
    assert (program.status_code, program.text) == (200, "Ollama is running")
    page = http.get("/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for path in re.findall('(?:src|href)="([^"]+)"', page.text):
        assert http.get(path).status_code == 200
    assert http.head("/").status_code == 200


def test_a_stream_says_which_tokens_a_draft_had_guessed(http: httpx.Client) -> None:
    options = {"include_usage": True, "include_drafted": True}
    body = {"messages": [{"role": "user", "content": "ab ab ab ab"}], "max_tokens": 60, "temperature": 0}
    body |= {"logprobs": True, "stream": True, "stream_options": options}
    text = http.post("/v1/chat/completions", json=body).text
    chunks = [json.loads(block[6:]) for block in text.strip().split("\n\n") if "[DONE]" not in block]
    entries = [
        entry
        for chunk in chunks
        for choice in chunk["choices"]
        for entry in (choice["logprobs"] or {"content": []})["content"]
    ]
    assert len(entries) == 60
    assert sum(entry["drafted"] for entry in entries) == chunks[-1]["speculation"]["accepted"] > 0
