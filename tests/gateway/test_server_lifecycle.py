"""Tests a server with real processes and signals: crashes, clients that disconnect, full queues, starts and ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from paceline.config import EngineConfig, ServerConfig
from tests.gateway.server_process import PATIENCE_S, ServerProcess, is_alive, wait_until
from tests.support.tiny_gguf import write_tiny_gguf

CONTEXT = 8192
LONG: Any = {"model": "default", "prompt": "the line", "max_tokens": CONTEXT - 100, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    """Returns settings for a tiny model without drafts. Its longest answer takes so long that a test can intervene."""
    path = tmp_path_factory.mktemp("long") / "long.gguf"
    write_tiny_gguf(path, "qwen2", "Q8_0", hidden_size=64, head_dim=16, ffn_size=128, context_length=CONTEXT)
    return EngineConfig(model=str(path), drafters=(), context_window_size=CONTEXT, max_batch_size=4, num_threads=1)


@pytest.fixture(scope="module")
def lasting_server(config: EngineConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Yields a server whose queue has two places, for tests after which the server still runs."""
    gateway = ServerConfig(port=0, max_queued_requests=2)
    with ServerProcess(tmp_path_factory.mktemp("lasting"), config, gateway) as process:
        yield process.wait_ready()


@pytest.fixture
def server(config: EngineConfig, tmp_path: Path) -> Iterator[ServerProcess]:
    """Yields a server for one test only, which does not wait for open requests when it ends."""
    with ServerProcess(tmp_path, config, ServerConfig(port=0, shutdown_grace_s=0.0)) as process:
        yield process.wait_ready()


def client_of(server: ServerProcess) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE_S)


def answers(server: ServerProcess) -> bool:
    """Returns whether the server answers a short request."""
    answer = client_of(server).completions.create(model="default", prompt="a", max_tokens=3)
    return answer.choices[0].finish_reason == "length"


class Growth:
    """The growth of a server's metrics since this object was created."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._before = server.metrics()

    def of(self, name: str) -> float:
        return self._server.metrics()[name] - self._before.get(name, 0.0)


def test_a_killed_engine_is_replaced(lasting_server: ServerProcess) -> None:
    server = lasting_server
    growth = Growth(server)
    first_engine = server.engine_process_id
    with client_of(server) as client:
        stream = client.completions.create(**LONG, stream=True)
        next(iter(stream))
        os.kill(first_engine, signal.SIGKILL)
        with pytest.raises(openai.APIError, match="engine process ended") as caught:
            list(stream)
    assert (caught.value.code, caught.value.type) == ("engine_crashed", "service_unavailable")
    assert answers(server)
    assert server.engine_process_id != first_engine
    assert growth.of("paceline_engine_restarts_total") == growth.of("paceline_engine_epoch") == 1
    assert "SIGKILL" in server.events("engine ended")[-1]["reason"]
    assert not is_alive(first_engine)


def test_a_crash_before_the_first_token_is_a_503(lasting_server: ServerProcess) -> None:
    server = lasting_server
    growth = Growth(server)
    engine = server.engine_process_id
    os.kill(engine, signal.SIGSTOP)
    with ThreadPoolExecutor() as pool, httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        body = {"prompt": "a", "max_tokens": 5}
        waiting = [pool.submit(http.post, "/v1/completions", json={**body, "stream": one}) for one in (True, False)]
        wait_until(lambda: growth.of("paceline_prompt_tokens_total") >= 2, "both requests are in flight")
        os.kill(engine, signal.SIGKILL)
        for response in (one.result() for one in waiting):
            assert (response.status_code, response.headers["retry-after"]) == (503, "1")
            assert response.json()["error"]["code"] == "engine_crashed"
    assert answers(server)


def test_a_request_during_a_restart_waits_for_it(lasting_server: ServerProcess) -> None:
    server = lasting_server
    num_crashes = len(server.events("engine ended"))
    os.kill(server.engine_process_id, signal.SIGKILL)
    wait_until(lambda: len(server.events("engine ended")) > num_crashes, "the crash is noticed")
    assert answers(server)
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_the_wait_for_an_engine_is_part_of_the_measured_times(lasting_server: ServerProcess) -> None:
    server = lasting_server
    growth = Growth(server)
    num_crashes = len(server.events("engine ended"))
    os.kill(server.engine_process_id, signal.SIGKILL)
    wait_until(lambda: len(server.events("engine ended")) > num_crashes, "the crash is noticed")
    start_s = time.monotonic()
    assert answers(server)
    duration_s = time.monotonic() - start_s
    assert growth.of("paceline_time_to_first_token_seconds_sum") > duration_s / 2
    assert growth.of("paceline_e2e_request_latency_seconds_sum") > duration_s / 2


def test_requests_that_cannot_be_honoured_take_no_place_in_the_queue(lasting_server: ServerProcess) -> None:
    url = f"{lasting_server.url}/v1/completions"
    for value in (2**64, 2**64, 2**63, 2**64):
        answer = httpx.post(url, json={"prompt": "a", "n": 2, "max_tokens": value}, timeout=PATIENCE_S)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "max_tokens")
    assert answers(lasting_server)


def test_a_client_that_leaves_a_stream_frees_its_place(lasting_server: ServerProcess) -> None:
    growth = Growth(lasting_server)
    with client_of(lasting_server) as client:
        stream = client.completions.create(**LONG, stream=True)
        next(iter(stream))
        stream.close()
    _assert_aborted(lasting_server, growth)


def test_a_client_that_leaves_before_an_answer_frees_its_place(lasting_server: ServerProcess) -> None:
    growth = Growth(lasting_server)
    host, port = lasting_server.url.removeprefix("http://").split(":")
    fields = {"max_tokens": CONTEXT - 100, "ignore_eos": True, "speculation": {"mode": "off"}}  # it must last
    body = json.dumps({"prompt": "the line", **fields}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(head + body)
        wait_until(lambda: growth.of("paceline_generation_tokens_total") > 0, "the first token is there")
    _assert_aborted(lasting_server, growth)


def _assert_aborted(server: ServerProcess, growth: Growth) -> None:
    aborted = 'paceline_request_success_total{engine="0",finished_reason="abort",model_name="long"}'
    wait_until(lambda: growth.of("paceline_request_success_total") == 1, "the gateway has ended the request")
    assert aborted in httpx.get(f"{server.url}/metrics").text
    wait_until(lambda: server.metrics()["paceline_num_requests_running"] == 0, "the engine has dropped the request")
    assert growth.of("paceline_generation_tokens_total") < CONTEXT - 100
    assert answers(server)


def test_a_full_queue_is_a_429(lasting_server: ServerProcess) -> None:
    server = lasting_server
    growth = Growth(server)
    os.kill(server.engine_process_id, signal.SIGSTOP)
    body = {"prompt": "a", "max_tokens": 2}
    with ThreadPoolExecutor() as pool, httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        waiting = [pool.submit(http.post, "/v1/completions", json=body) for _ in range(2)]
        wait_until(lambda: growth.of("paceline_prompt_tokens_total") >= 2, "both requests are in flight")
        refused = http.post("/v1/completions", json=body)
        os.kill(server.engine_process_id, signal.SIGCONT)
        assert [one.result().status_code for one in waiting] == [200, 200]
        assert http.post("/v1/completions", json={**body, "n": 3}).status_code == 400
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["error"]["code"] == "queue_full"


def test_an_engine_that_hangs_is_replaced(config: EngineConfig, tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config, ServerConfig(port=0, engine_timeout_s=3.0)) as server:
        engine = server.wait_ready().engine_process_id
        os.kill(engine, signal.SIGSTOP)
        response = httpx.post(f"{server.url}/v1/completions", json={"prompt": "a"}, timeout=PATIENCE_S)
        assert response.json()["error"]["code"] == "engine_crashed"
        assert answers(server)
        assert server.engine_process_id != engine
        assert len(server.events("engine hangs")) == 1


@pytest.mark.parametrize("is_keyboard", [True, False])
def test_a_signal_ends_both_processes_cleanly(server: ServerProcess, is_keyboard: bool) -> None:
    engine = server.engine_process_id
    with client_of(server) as client:
        stream = client.completions.create(**LONG, stream=True)
        next(iter(stream))
        if is_keyboard:
            os.killpg(server.process.pid, signal.SIGINT)
        else:
            server.process.terminate()
        with pytest.raises(openai.APIError, match="shutting down"):
            list(stream)
    assert server.wait_for_end() == 0
    _assert_nothing_is_left(server, engine)
    assert not any("Traceback" in line for line in server.log)


def test_open_answers_may_end_within_the_grace(config: EngineConfig, tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config, ServerConfig(port=0, shutdown_grace_s=PATIENCE_S)) as server:
        server.wait_ready()
        with client_of(server) as client:
            stream = client.completions.create(model="default", prompt="a", max_tokens=200, stream=True)
            next(iter(stream))
            server.process.terminate()
            assert list(stream)[-1].choices[0].finish_reason in ("length", "stop")
        assert server.wait_for_end() == 0


def test_a_second_signal_cuts_the_grace_short(config: EngineConfig, tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config, ServerConfig(port=0, shutdown_grace_s=PATIENCE_S)) as server:
        server.wait_ready()
        engine = server.engine_process_id
        os.kill(engine, signal.SIGSTOP)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(httpx.post, f"{server.url}/v1/completions", json={"prompt": "a"}, timeout=PATIENCE_S)
            wait_until(lambda: server.metrics()["paceline_prompt_tokens_total"] >= 1, "the request is in flight")
            server.process.terminate()
            wait_until(lambda: server.events("shutting down"), "the first signal is noticed")
            server.process.terminate()
            assert waiting.result().json()["error"]["code"] == "shutting_down"
        os.kill(engine, signal.SIGCONT)
        assert server.wait_for_end() == 0
        _assert_nothing_is_left(server, engine)


def test_an_engine_ends_with_its_gateway(server: ServerProcess) -> None:
    engine = server.engine_process_id
    assert is_alive(engine)
    assert [path.stat().st_mode & 0o777 for path in server.temporary_dir.iterdir()] == [0o700]
    server.process.kill()
    wait_until(lambda: not is_alive(engine), "the engine has ended")
    _assert_nothing_is_left(server, engine)


def _assert_nothing_is_left(server: ServerProcess, engine: int) -> None:
    assert not is_alive(engine)
    assert list(server.temporary_dir.iterdir()) == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")


def test_a_port_in_use_is_told_before_anything_is_loaded(config: EngineConfig, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with ServerProcess(tmp_path, config, ServerConfig(port=port)) as server:
            assert server.wait_for_end() == 1
    assert server.log == [f"UsageError: port {port} on 127.0.0.1 is in use: choose another with --port\n"]


def test_requests_may_come_before_the_engine_is_ready(config: EngineConfig, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as finder:
        port = finder.getsockname()[1]
    with ServerProcess(tmp_path, config, ServerConfig(port=port)) as server:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _status(url) is not None, "the port is open")
        answer = httpx.post(f"{url}/v1/completions", json={"prompt": "a", "max_tokens": 2}, timeout=PATIENCE_S)
        assert answer.json()["usage"]["completion_tokens"] == 2
        assert server.wait_ready().process.poll() is None
        assert _status(url) == 200


def _status(url: str) -> int | None:
    try:
        return httpx.get(f"{url}/health", timeout=PATIENCE_S).status_code
    except httpx.ConnectError:
        return None


def test_a_damaged_model_ends_the_start_with_its_error(config: EngineConfig, tmp_path: Path) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(Path(config.model).read_bytes()[:30_000])
    with ServerProcess(tmp_path, config.model_copy(update={"model": str(path)})) as server:
        assert server.wait_for_end() == 1
        assert list(server.temporary_dir.iterdir()) == []
    assert server.log[-1].startswith("CheckpointError: ")
    assert "damaged.gguf" in server.log[-1]


def test_a_missing_model_ends_the_start_with_its_error(config: EngineConfig, tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config.model_copy(update={"model": str(tmp_path / "no.gguf")})) as server:
        assert server.wait_for_end() == 1
    assert server.log[-1].startswith("ModelNotFoundError: ")


def test_a_draft_model_with_another_vocabulary_is_refused_by_the_engine(config: EngineConfig, tmp_path: Path) -> None:
    other = write_tiny_gguf(tmp_path / "other.gguf", "qwen2", "Q8_0", hidden_size=64, head_dim=16, vocab_size=300)
    wrong = config.model_copy(update={"draft_model": str(other), "drafters": ("draft-model",)})
    with ServerProcess(tmp_path, wrong) as server:
        assert server.wait_for_end() == 1
    assert server.log[-1].startswith("VocabularyMismatchError: ")
    assert not any("Traceback" in line for line in server.log)
