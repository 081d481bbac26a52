"""Tests the gateway's small parts: listener, disconnect, restart delay, error kinds and log lines."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys

import pytest

from paceline.core.errors import CheckpointError, InvalidRequestError, PacelineError, UsageError
from paceline.gateway.engines.process.supervisor import RestartDelay, error_of_kind
from paceline.gateway.errors import (
    EngineEndedError,
    EngineStartingError,
    QueueFullError,
    ShuttingDownError,
    UnknownModelError,
)
from paceline.gateway.http.disconnect import ClientGoneError, until_disconnect
from paceline.gateway.http.errors import api_error_from, openai_error_body
from paceline.gateway.http.listener import open_listener, url_of
from paceline.gateway.http.streamed_response import event
from paceline.gateway.principal import Principal, Role, principal_of
from paceline.observability.logging import JsonFormatter, PlainFormatter, log_event


def test_a_port_in_use_is_a_usage_error_that_says_what_to_do() -> None:
    with open_listener("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} on 127.0.0.1 is in use: choose another with --port"):
            open_listener("127.0.0.1", port)
    with open_listener("127.0.0.1", port) as listener:
        assert url_of(listener) == f"http://127.0.0.1:{port}"


def test_the_listener_takes_connections_at_once() -> None:
    with open_listener("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), 5) as client:
        assert client.getpeername() == listener.getsockname()


def test_an_address_of_another_machine_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--host"):
        open_listener("192.0.2.1", 0)
    with pytest.raises(UsageError, match="is not an address of this machine"):
        open_listener("no.such.host.invalid", 0)


def test_the_address_of_all_interfaces_is_shown_as_one_that_works() -> None:
    with open_listener("0.0.0.0", 0) as listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_work_ends_when_the_client_leaves() -> None:
    messages: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    running = asyncio.create_task(until_disconnect(messages.get, work()))
    await asyncio.sleep(0)
    messages.put_nowait({"type": "http.disconnect"})
    with pytest.raises(ClientGoneError):
        await running
    assert ended.is_set()


async def test_work_gives_its_result_and_its_error() -> None:
    messages: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def work(value: int) -> int:
        return 10 // value

    assert await until_disconnect(messages.get, work(2)) == 5
    with pytest.raises(ZeroDivisionError):
        await until_disconnect(messages.get, work(0))


def test_restarts_wait_longer_while_engines_die_young() -> None:
    delay = RestartDelay()
    assert [delay.after(1.0) for _ in range(9)] == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert [delay.after(100.0), delay.after(1.0)] == [0.0, 0.5]


def test_an_engines_error_is_raised_as_its_own_kind() -> None:
    error = error_of_kind("CheckpointError", "truncated")
    assert type(error) is CheckpointError
    assert str(error) == "truncated"
    assert type(error_of_kind("SystemExit", "x")) is PacelineError


def test_a_tenant_is_a_hash_of_the_key_whatever_header_brings_it() -> None:
    headers = [("Bearer a", None), ("Bearer b", None), ("Bearer \xe9", None), ("Basic a", None)]
    tenants = [principal_of(*pair).tenant for pair in headers]
    assert len(set(tenants)) == 4
    assert {len(tenant) for tenant in tenants} == {32}
    for same in [("Bearer a", None), ("bearer  a", None), (None, "a"), ("", "a"), ("Bearer a", "b")]:
        assert principal_of(*same).tenant == tenants[0]
    assert principal_of(None, None) == principal_of("", "") == principal_of("Bearer ", None) == Principal("")
    assert principal_of("Bearer", None) == principal_of("Bearer", "") == Principal("")
    assert principal_of("Bearer", "a") == principal_of("bearer  ", "a") == principal_of("Bearer a", "b")
    assert principal_of("Bearer a", None).role is Role.USE


@pytest.mark.parametrize(
    ("error", "status", "code", "retry_after"),
    [
        (UnknownModelError("a", "b"), 404, "model_not_found", None),
        (QueueFullError(3), 429, "queue_full", "1"),
        (EngineStartingError(2.0), 503, "engine_starting", "5"),
        (EngineEndedError(), 503, "engine_crashed", "1"),
        (ShuttingDownError(), 503, "shutting_down", "5"),
        (InvalidRequestError("no", "n", "c"), 400, "c", None),
        (PacelineError("no"), 500, "engine_error", None),
    ],
)
def test_every_error_of_the_service_has_its_status(
    error: PacelineError, status: int, code: str, retry_after: str | None
) -> None:
    answer = api_error_from(error)
    assert (answer.status, answer.code, answer.headers.get("retry-after")) == (status, code, retry_after)
    assert openai_error_body(answer)["error"]["message"] == str(error)


def test_an_error_nobody_meant_tells_nothing_about_its_inside() -> None:
    answer = api_error_from(KeyError("secret"))
    assert answer.status == 500
    assert "secret" not in str(openai_error_body(answer))


def test_an_event_is_one_line_of_json() -> None:
    assert event({"a": "x\ny", "b": None}) == b'data: {"a":"x\\ny","b":null}\n\n'


def _record(level: int = logging.INFO) -> logging.LogRecord:
    records: list[logging.LogRecord] = []
    logger = logging.Logger("paceline.test")
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    log_event(logger, "engine ended", level=level, reason="signal SIGKILL", epoch=2, delay_s=0.5, model=None)
    return records[0]


def test_plain_log_lines_show_fields() -> None:
    line = PlainFormatter().format(_record(logging.ERROR))
    assert line[9:] == "error engine ended reason='signal SIGKILL' epoch=2 delay_s=0.5 model=None"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/v1/models", "/v1/models"),
        ("/é/日本", "/é/日本"),
        ("", "''"),
        ("/a b", "'/a b'"),
        ("/\x1b[2J\x1b]0;title\x07", r"'/\x1b[2J\x1b]0;title\x07'"),
        ("/\x9b31m", r"'/\x9b31m'"),
        ("/\u202egpj", r"'/\u202egpj'"),
        ("/\r\n12:00:00 info forged", r"'/\r\n12:00:00 info forged'"),
    ],
)
def test_plain_log_lines_show_no_terminal_escapes(text: str, shown: str) -> None:
    record = _record()
    record.paceline_fields = {"path": text}
    assert PlainFormatter().format(record)[9:] == f"info engine ended path={shown}"


def test_plain_tracebacks_show_no_terminal_escapes() -> None:
    record = _record()
    try:
        raise ValueError("\x1b[2Jtext")
    except ValueError:
        record.exc_info = sys.exc_info()
    line = PlainFormatter().format(record)
    assert line.endswith(r"ValueError: \x1b[2Jtext")
    assert "\nTraceback (most recent call last):\n" in line


def test_json_log_lines_hold_fields() -> None:
    entry = json.loads(JsonFormatter().format(_record()))
    assert (entry["event"], entry["level"], entry["logger"]) == ("engine ended", "info", "paceline.test")
    assert (entry["reason"], entry["epoch"], entry["model"]) == ("signal SIGKILL", 2, None)


@pytest.mark.parametrize("formatter", [PlainFormatter(), JsonFormatter()])
def test_tracebacks_are_logged(formatter: logging.Formatter) -> None:
    record = _record()
    try:
        raise ValueError("why")
    except ValueError:
        record.exc_info = sys.exc_info()
    assert "ValueError: why" in formatter.format(record)
