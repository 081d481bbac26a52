"""Which web pages may use the server, and by which names it may be called."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from paceline.config import EngineConfig, ServerConfig
from tests.gateway.server_process import PATIENCE_S, ServerProcess

BODY = {"prompt": "a", "max_tokens": 1}
FRIEND = "https://chat.example.org"


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        yield client


def ask(http: httpx.Client, **headers: str) -> httpx.Response:
    return http.post("/v1/completions", json=BODY, headers=headers)


def test_programs_and_own_pages_are_served(http: httpx.Client) -> None:
    own = str(http.base_url).rstrip("/")
    assert ask(http).status_code == 200
    assert ask(http, origin=own).status_code == 200
    port = http.base_url.port
    for name in ("localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "[::1]", "paceline.localhost"):
        assert ask(http, host=f"{name}:{port}").status_code == 200
    for program in ("vscode-webview://abc", "app://obsidian.md"):
        assert ask(http, origin=program).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://127.0.0.1:1", "http://localhost", "null", "https://127.0.0.1.evil.example"],
)
def test_pages_of_strangers_are_refused(http: httpx.Client, origin: str) -> None:
    response = ask(http, origin=origin)
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "forbidden_origin"
    assert "access-control-allow-origin" not in response.headers
    preflight = http.options("/v1/completions", headers={"origin": origin, "access-control-request-method": "POST"})
    assert preflight.status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "10.0.0.1", "localhost.evil.example", "a@b"])
def test_names_of_strangers_are_refused(http: httpx.Client, host: str) -> None:
    response = ask(http, host=host)
    assert response.status_code in (400, 403)  # h11 itself refuses some of them
    rebound = ask(http, host=host, origin=f"http://{host}")
    assert rebound.status_code in (400, 403)


def test_nonsense_in_these_headers_is_refused(http: httpx.Client) -> None:
    for origin in ("http://[", "https://[::1", "http://"):
        assert ask(http, origin=origin).status_code == 403
    assert ask(http, host="[").status_code in (400, 403)
    assert ask(http, host="LLM.localhost:1").status_code == 200


def test_errors_have_the_form_of_the_front(http: httpx.Client) -> None:
    refused = http.post("/v1/messages", json={}, headers={"origin": "https://evil.example"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "permission_error")
    assert set(http.get("/api/tags", headers={"origin": "https://evil.example"}).json()) == {"error"}


def test_pages_and_names_can_be_allowed(engine_config: EngineConfig, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = ServerConfig(port=0, cors_origins=FRIEND, allowed_hosts="llm.example.org")
    with (
        ServerProcess(tmp_path_factory.mktemp("origins"), engine_config, settings) as process,
        httpx.Client(base_url=process.wait_ready().url, timeout=PATIENCE_S) as http,
    ):
        allowed = ask(http, origin=FRIEND)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == FRIEND
        asked = {"origin": FRIEND, "access-control-request-method": "POST"}
        asked["access-control-request-headers"] = "authorization,content-type"
        preflight = http.options("/v1/completions", headers=asked)
        assert preflight.status_code == 200
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert ask(http, origin="https://evil.example").status_code == 403
        assert ask(http, host="llm.example.org").status_code == 200
        assert ask(http, host="evil.example").status_code == 403
