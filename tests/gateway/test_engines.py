"""A gateway with other engines than one native process: with two replicas, and with the reference backend."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from paceline.checkpoint import ResolvedModel
from paceline.config import EngineConfig, ServerConfig
from paceline.core.errors import UsageError
from paceline.gateway.engines.process.start import create_replicas
from paceline.observability import StatusBoard
from tests.gateway.server_process import PATIENCE_S, ServerProcess, is_alive, wait_until

MESSAGES = [{"role": "user", "content": "the front of the line"}]


@pytest.fixture(scope="module")
def two_engines(engine_config: EngineConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Yields a server with two engines of the same tiny model."""
    with ServerProcess(tmp_path_factory.mktemp("two"), engine_config, num_engines=2) as process:
        yield process.wait_ready()


def chat(url: str, **fields: object) -> str:
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 60, "ignore_eos": True, **fields}
    response = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S)
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


def by_engine(server: ServerProcess, name: str) -> dict[str, float]:
    """Returns the value of a metric for each engine."""
    text = httpx.get(f"{server.url}/metrics", timeout=PATIENCE_S).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {sample.labels["engine"]: sample.value for sample in samples if sample.name == name}


def process_ids(server: ServerProcess) -> dict[str, int]:
    """Returns the id of the latest process of each engine."""
    return {event["engine"]: event["process_id"] for event in server.events("engine starting")}


def test_two_replicas_share_the_work_and_say_the_same(two_engines: ServerProcess, server: ServerProcess) -> None:
    processes = process_ids(two_engines)
    assert processes.keys() == {"0", "1"}
    assert len({*processes.values(), two_engines.process.pid}) == 3
    assert all(map(is_alive, processes.values()))
    with ThreadPoolExecutor(8) as threads:
        texts = set(threads.map(lambda _: chat(two_engines.url), range(16)))
    assert texts == {chat(server.url)}
    generated = by_engine(two_engines, "paceline_generation_tokens_total")
    assert sum(generated.values()) == 16 * 60
    assert generated.keys() == {"0", "1"}
    assert min(generated.values()) >= 4 * 60
    assert by_engine(two_engines, "paceline_engine_up") == {"0": 1, "1": 1}
    assert len(httpx.get(f"{two_engines.url}/v1/models").json()["data"]) == 1


def test_one_replica_answers_while_the_other_starts_again(two_engines: ServerProcess) -> None:
    expected = chat(two_engines.url)
    os.kill(process_ids(two_engines)["0"], signal.SIGKILL)
    wait_until(lambda: two_engines.events("engine ended"), "the end is noticed")
    assert {chat(two_engines.url) for _ in range(4)} == {expected}
    assert httpx.get(f"{two_engines.url}/health").status_code == 200
    wait_until(lambda: by_engine(two_engines, "paceline_engine_up")["0"] == 1, "it has started again")
    assert by_engine(two_engines, "paceline_engine_restarts_total") == {"0": 1, "1": 0}
    assert by_engine(two_engines, "paceline_engine_epoch") == {"0": 1, "1": 0}
    assert two_engines.events("engine ended")[0]["engine"] == "0"


def test_the_reference_backend_serves_a_chat(
    engine_config: EngineConfig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = engine_config.model_copy(update={"backend": "reference"})
    with ServerProcess(tmp_path_factory.mktemp("reference"), config) as process:
        url = process.wait_ready().url
        drafted, plain = (
            chat(url, max_tokens=24, speculation=speculation) for speculation in ({"mode": "auto"}, {"mode": "off"})
        )
        assert drafted == plain != ""
        assert by_engine(process, "paceline_spec_decode_num_accepted_tokens_total")["0"] > 0


def test_an_engine_starts_again_though_its_sockets_folder_is_gone(two_engines: ServerProcess) -> None:
    expected = chat(two_engines.url)
    before = process_ids(two_engines)["1"]
    for folder in two_engines.temporary_dir.glob("paceline-*"):
        shutil.rmtree(folder)
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: process_ids(two_engines)["1"] != before, "it is started again")
    wait_until(lambda: by_engine(two_engines, "paceline_engine_up")["1"] == 1, "it is ready")
    assert {chat(two_engines.url) for _ in range(4)} == {expected}


@pytest.mark.parametrize("other", [{"path": "b.gguf"}, {"kv_cache_type": "q8"}, {"backend": "reference"}])
def test_engines_of_one_name_that_would_say_different_texts_are_refused(other: dict[str, str], tmp_path: Path) -> None:
    def engine(path: str = "a.gguf", **settings: str) -> tuple[EngineConfig, ResolvedModel]:
        return EngineConfig(model=path, **settings), ResolvedModel("x", tmp_path / path)

    with pytest.raises(UsageError, match="engines with the same name 'x' differ in model, backend"):
        create_replicas([engine(), engine(**other)], ServerConfig(), StatusBoard(), tmp_path)
