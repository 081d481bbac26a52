"""A package index and file server on localhost. Tests give it wheels to serve, and faults to cause."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Fault = Callable[["RequestRecord"], "Answer | None"]


@dataclass(frozen=True)
class RequestRecord:
    """One request that the server got. `offset` is the first byte of its Range header; None if it has none."""

    path: str
    offset: int | None
    authorization: str | None


@dataclass(frozen=True)
class Answer:
    """How the server answers a request because of a fault: with another status, with only `max_bytes` of the file, or
    with the whole file although a Range was asked for."""

    status: int = 200
    max_bytes: int | None = None
    ignores_range: bool = False


@dataclass
class PackageServer:
    """The state of the server: `files` by their names below /files/, and the files of each package in `packages`.

    `fault` returns the faulty answer to a request (None: no fault). `error_code` is sent with errors in the header
    `X-Error-Code`, as the hub does."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    packages: dict[str, list[str]] = field(default_factory=dict)
    pages: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    published_sums: dict[str, str] = field(default_factory=dict)
    error_code: str | None = None
    fault: Fault = lambda request: None
    requests: list[RequestRecord] = field(default_factory=list)

    @property
    def index_url(self) -> str:
        return f"{self.url}/simple"

    def add(self, package: str, version: str, member: str, data: bytes) -> str:
        """Adds a wheel that contains `data`; returns its file name."""
        name = f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
        self.files[name] = make_wheel(member, data)
        self.published_sums[name] = hashlib.sha256(self.files[name]).hexdigest()
        self.packages.setdefault(package, []).append(name)
        return name

    def downloads(self) -> list[RequestRecord]:
        return [request for request in self.requests if request.path.startswith("/files/")]

    def json_page(self, package: str) -> bytes:
        files = [
            {
                "filename": name,
                "url": f"../../files/{name}",
                "hashes": {"sha256": self.published_sums[name]},
                "size": len(self.files[name]),
            }
            for name in self.packages[package]
        ]
        return json.dumps({"meta": {"api-version": "1.1"}, "name": package, "files": files}).encode()

    def html_page(self, package: str) -> bytes:
        links = [
            f'<a data-requires-python="&gt;=3.9" href="../../files/{name}#sha256={self.published_sums[name]}">file</a>'
            for name in self.packages[package]
        ]
        return f"<!DOCTYPE html><html><body>{'<br/>'.join(links)}</body></html>".encode()


def make_wheel(member: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("package/__init__.py", "raise RuntimeError('no code of a package may run')\n")
        archive.writestr(member, data)
    return buffer.getvalue()


@contextmanager
def serving() -> Iterator[PackageServer]:
    """Yields a running server on a free port of localhost."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    http.daemon_threads = True
    server = PackageServer(f"http://127.0.0.1:{http.server_address[1]}")
    http.state = server
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server: PackageServer = self.server.state
        span = self.headers.get("Range")
        offset = int(span.removeprefix("bytes=").removesuffix("-")) if span else None
        request = RequestRecord(self.path, offset, self.headers.get("Authorization"))
        server.requests.append(request)
        answer = server.fault(request) or Answer()
        content_type, body = self._content(server)
        if body is None or answer.status != 200:
            headers = {"X-Error-Code": server.error_code} if server.error_code else {}
            self._send(answer.status if answer.status != 200 else 404, content_type, b"no", headers=headers)
        elif offset is not None and not answer.ignores_range:
            self._send_range(content_type, body, offset, answer)
        else:
            self._send(200, content_type, body, answer.max_bytes)

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _content(self, server: PackageServer) -> tuple[str, bytes | None]:
        path = self.path.partition("?")[0]
        if path in server.pages:
            return server.pages[path]
        *_, kind, name = path.strip("/").rsplit("/", 1) if "/" in path.strip("/") else ("", path)
        if kind == "files":
            return "application/octet-stream", server.files.get(name)
        if kind == "simple" and name in server.packages:
            return "application/vnd.pypi.simple.v1+json", server.json_page(name)
        if kind == "html" and name in server.packages:
            return "text/html", server.html_page(name)
        return "text/plain", None

    def _send_range(self, content_type: str, body: bytes, offset: int, answer: Answer) -> None:
        if offset >= len(body):
            self._send(416, content_type, b"")
            return
        span = f"bytes {offset}-{len(body) - 1}/{len(body)}"
        self._send(206, content_type, body[offset:], answer.max_bytes, {"Content-Range": span})

    def _send(
        self,
        status: int,
        content_type: str,
        body: bytes,
        max_bytes: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:max_bytes])
        self.close_connection = self.close_connection or max_bytes is not None

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""
