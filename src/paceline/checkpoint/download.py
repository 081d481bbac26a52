"""`Downloader`: fetches files over HTTP, and resumes broken transfers so that no byte is fetched twice.

A transfer is written to `<file>.part`. After a break it goes on with a Range request, in the same call or the next one.
The mirrors (`hub`, `package_index`) say which files to fetch, and which sizes and checksums are published for them.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx

from paceline.checkpoint.atomic_file import sync_to_disk
from paceline.checkpoint.progress import ProgressListener
from paceline.core.errors import ChecksumError, DownloadError

NUM_CONNECTIONS = 4
NUM_PAGE_ATTEMPTS = 3
_TRANSIENT_STATUSES = frozenset({408, 416, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to fetch (http, https or file URL), with its size and sha256 as published (None: not published)."""

    url: str
    size_bytes: int | None = None
    sha256: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to give up a transfer: after `max_attempts` breaks in a row without a new byte between them. The pause after
    the first break is `first_pause_s`; it doubles after each further one."""

    max_attempts: int = 5
    first_pause_s: float = 0.5


class _InterruptedTransferError(Exception):
    """A transfer ended early and may be resumed."""


class Downloader:
    """Fetches files with `client`; may be used from several threads."""

    def __init__(self, client: httpx.Client, progress: ProgressListener, retries: RetryPolicy) -> None:
        self._client = client
        self._progress = progress
        self._retries = retries
        self._is_cancelled = threading.Event()

    def fetch_all(self, downloads: Sequence[tuple[RemoteFile, Path]], description: str) -> None:
        """Fetches all files, several at a time; the first error stops the others and is raised."""
        sizes = [remote.size_bytes for remote, _ in downloads]
        self._progress.begin(description, None if None in sizes else sum(size or 0 for size in sizes))
        with ThreadPoolExecutor(NUM_CONNECTIONS) as pool:
            transfers = [pool.submit(self.fetch, remote, destination) for remote, destination in downloads]
            try:
                for transfer in as_completed(transfers):
                    transfer.result()
            except BaseException:
                self._is_cancelled.set()
                pool.shutdown(cancel_futures=True)
                raise

    def get(self, url: str, headers: Mapping[str, str]) -> httpx.Response:
        """Returns a small response, read whole; raises httpx.HTTPError if several attempts brought none."""
        for attempt in range(NUM_PAGE_ATTEMPTS - 1):
            try:
                response = self._client.get(url, headers=headers)
                if response.status_code not in _TRANSIENT_STATUSES:
                    return response
            except httpx.TransportError as error:
                self._progress.note(f"{shown(url)}: {error or type(error).__name__}; trying again")
            self._is_cancelled.wait(self._retries.first_pause_s * 2**attempt)
        return self._client.get(url, headers=headers)

    def fetch(self, remote: RemoteFile, destination: Path) -> None:
        """Puts the file at `destination`, unless it is there already as published.

        Raises DownloadError, ChecksumError.
        """
        if destination.exists():
            if _is_as_published(destination, remote):
                self._progress.advance(destination.stat().st_size)
                return
            destination.unlink()
        part = destination.with_name(f"{destination.name}.part")
        had_earlier_bytes = part.exists()
        try:
            self._complete(remote, part)
        except ChecksumError:
            self._start_over(part)
            if not had_earlier_bytes:
                raise
            self._complete(remote, part)
        sync_to_disk(part)
        part.replace(destination)

    def _complete(self, remote: RemoteFile, part: Path) -> None:
        if urlsplit(remote.url).scheme == "file":
            shutil.copyfile(path_of(remote.url), part)
            self._progress.advance(part.stat().st_size)
        else:
            self._transfer_until_complete(remote, part)
        if remote.sha256 is not None:
            check_sha256(part, remote.sha256, shown(remote.url))

    def _transfer_until_complete(self, remote: RemoteFile, part: Path) -> None:
        self._progress.advance(_size_of(part))
        num_failures, most_bytes = 0, _size_of(part)
        while _size_of(part) != remote.size_bytes:
            self._check_cancelled()
            try:
                self._transfer(remote, part)
            except (httpx.TransportError, _InterruptedTransferError) as error:
                num_failures = 1 if _size_of(part) > most_bytes else num_failures + 1
                most_bytes = max(most_bytes, _size_of(part))
                if num_failures >= self._retries.max_attempts:
                    raise DownloadError(f"{shown(remote.url)}: {error or type(error).__name__}") from error
                self._is_cancelled.wait(self._retries.first_pause_s * 2 ** (num_failures - 1))
            else:
                return

    def _transfer(self, remote: RemoteFile, part: Path) -> None:
        """Sends one request for the bytes that `part` does not have yet, and appends them to it."""
        offset = _size_of(part)
        headers = {**remote.headers, "Accept-Encoding": "identity"}
        if offset > 0:
            headers["Range"] = f"bytes={offset}-"
        with self._client.stream("GET", remote.url, headers=headers) as response:
            self._check_status(response, remote, part)
            is_continued = response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")
            if response.status_code == httpx.codes.OK or not is_continued:
                self._start_over(part)
            if response.status_code == httpx.codes.PARTIAL_CONTENT and not is_continued:
                raise _InterruptedTransferError("the server sent another range than was asked for")
            self._receive(response, part)
        size_bytes = _size_of(part)
        if remote.size_bytes is not None and size_bytes > remote.size_bytes:
            self._start_over(part)
            raise DownloadError(f"{shown(remote.url)}: received {size_bytes} bytes instead of {remote.size_bytes}")
        if remote.size_bytes is not None and size_bytes < remote.size_bytes:
            raise _InterruptedTransferError(f"the connection ended after {size_bytes} of {remote.size_bytes} bytes")

    def _check_status(self, response: httpx.Response, remote: RemoteFile, part: Path) -> None:
        status = response.status_code
        if status in (httpx.codes.OK, httpx.codes.PARTIAL_CONTENT):
            return
        if status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            self._start_over(part)
        problem = f"the server answered {status} {response.reason_phrase}".rstrip()
        if status in _TRANSIENT_STATUSES:
            raise _InterruptedTransferError(problem)
        raise DownloadError(f"{shown(remote.url)}: {problem}")

    def _receive(self, response: httpx.Response, part: Path) -> None:
        with part.open("ab") as file:
            for chunk in response.iter_raw():  # unbuffered, so that a break loses nothing
                self._check_cancelled()
                file.write(chunk)
                self._progress.advance(len(chunk))

    def _check_cancelled(self) -> None:
        if self._is_cancelled.is_set():
            raise DownloadError("the download was cancelled")

    def _start_over(self, part: Path) -> None:
        self._progress.advance(-_size_of(part))
        part.unlink(missing_ok=True)


def _is_as_published(path: Path, remote: RemoteFile) -> bool:
    """Returns whether the file has the published size and sha256, as far as these are published."""
    has_size = remote.size_bytes in (None, path.stat().st_size)
    return has_size and (remote.sha256 is None or sha256_of(path) == remote.sha256)


def check_sha256(path: Path, expected: str, source: str) -> None:
    """Raises ChecksumError, which names both sums and the source, if the file's sha256 is not the expected one."""
    found = sha256_of(path)
    if found != expected:
        raise ChecksumError(f"{source}: the sha256 is {found} instead of {expected}; this copy was discarded")


def sha256_of(path: Path) -> str:
    """Returns the file's sha256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def shown(url: str) -> str:
    """Returns the URL as it may appear in messages: without user name, password, query and fragment."""
    scheme, netloc, path, _, _ = urlsplit(url)
    return urlunsplit((scheme, netloc.rpartition("@")[2], path, "", ""))


def path_of(file_url: str) -> Path:
    """Returns the local path that a file URL names."""
    return Path(unquote(urlsplit(file_url).path))


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
