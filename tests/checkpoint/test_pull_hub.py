"""Pulls from the model hub with the real `huggingface_hub` library, from a server that answers as the hub does."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from paceline.checkpoint import CatalogEntry, HubSource, ModelStore
from paceline.core.errors import (
    CheckpointError,
    ChecksumError,
    DownloadError,
    ModelNotFoundError,
    UnsupportedModelError,
    UsageError,
)
from tests.checkpoint.package_server import Answer, PackageServer
from tests.checkpoint.pull_support import ENTRY, UNREACHABLE_HUB, RecordedProgress, store_in
from tests.checkpoint.small_gguf import write_small_gguf, write_unknown_weights
from tests.checkpoint.test_gguf import write_split_model

REPOSITORY = "test-owner/test-GGUF"
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def plain_hub_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_TOKEN", "test-token")


@pytest.fixture
def model_bytes(tmp_path: Path) -> bytes:
    return write_small_gguf(tmp_path / "original.gguf").read_bytes()


def publish(server: PackageServer, files: dict[str, bytes], *, wrong_sum: str | None = None) -> None:
    siblings = [{"rfilename": "README.md", "size": 3}]
    for name, content in files.items():
        checksum = wrong_sum or hashlib.sha256(content).hexdigest()
        lfs = {"sha256": checksum, "size": len(content), "pointerSize": 134}
        siblings.append({"rfilename": name, "size": len(content), "lfs": lfs})
        url_path = f"/{REPOSITORY}/resolve/{REVISION}/{quote(name)}"
        server.pages[url_path] = ("application/octet-stream", content)
    answer = {"id": REPOSITORY, "sha": REVISION, "siblings": siblings}
    server.pages[f"/api/models/{REPOSITORY}"] = ("application/json", json.dumps(answer).encode())


def hub_store(server: PackageServer, directory: Path, entry: CatalogEntry = ENTRY) -> ModelStore:
    return store_in(directory, entry, server.url)


def entry_for(content: bytes) -> CatalogEntry:
    return CatalogEntry(
        name="test-model",
        description="a model on the hub",
        license="Apache-2.0",
        architecture="llama",
        file_name="renamed.gguf",
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        sources=(HubSource(REPOSITORY, "model-q4_k_m.gguf"),),
    )


def test_catalog_entry_is_pulled_from_the_hub_and_resumed(server: PackageServer, tmp_path: Path, model_bytes: bytes):
    publish(server, {"model-q4_k_m.gguf": model_bytes})
    server.fault = lambda request: (
        Answer(max_bytes=1000) if "/resolve/" in request.path and request.offset is None else None
    )
    progress = RecordedProgress()
    model = hub_store(server, tmp_path / "cache", entry_for(model_bytes)).pull("test-model", progress=progress)
    assert model.path.name == "renamed.gguf"
    assert model.path.read_bytes() == model_bytes
    assert model.source == f"model hub ({REPOSITORY})"
    assert progress.totals["downloading test-model"] == progress.sums["downloading test-model"] == len(model_bytes)
    transfers = [request for request in server.requests if "/resolve/" in request.path]
    assert [request.offset for request in transfers] == [None, 1000]
    assert {request.authorization for request in transfers} == {"Bearer test-token"}


def test_a_token_of_the_settings_is_used_for_every_question(server: PackageServer, tmp_path: Path, model_bytes: bytes):
    publish(server, {"model-q4_k_m.gguf": model_bytes})
    store = replace(
        hub_store(server, tmp_path / "cache", entry_for(model_bytes)), read_hub_token=lambda: "of-the-settings"
    )
    store.pull("test-model")
    asked = [request for request in server.requests if "/resolve/" in request.path or "/api/" in request.path]
    assert len(asked) >= 2
    assert {request.authorization for request in asked} == {"Bearer of-the-settings"}
    assert "of-the-settings" not in repr(store)


def test_other_content_on_the_hub_is_not_even_downloaded(server: PackageServer, tmp_path: Path, model_bytes: bytes):
    publish(server, {"model-q4_k_m.gguf": model_bytes + b"changed"})
    published = hashlib.sha256(model_bytes + b"changed").hexdigest()
    expected = hashlib.sha256(model_bytes).hexdigest()
    with pytest.raises(
        ChecksumError, match=rf"{REPOSITORY}\): the published sha256 is {published} instead of {expected}"
    ):
        hub_store(server, tmp_path / "cache", entry_for(model_bytes)).pull("test-model")
    assert not any("/resolve/" in request.path for request in server.requests)


def test_content_that_differs_from_the_hubs_own_sum_is_refused(
    server: PackageServer, tmp_path: Path, model_bytes: bytes
):
    publish(server, {"model.gguf": model_bytes}, wrong_sum="1" * 64)
    found = hashlib.sha256(model_bytes).hexdigest()
    with pytest.raises(ChecksumError, match=rf"model\.gguf: the sha256 is {found} instead of {'1' * 64}"):
        hub_store(server, tmp_path / "cache").pull(REPOSITORY)


def test_only_model_of_a_repository_needs_no_file_name(server: PackageServer, tmp_path: Path, model_bytes: bytes):
    publish(server, {"some model.gguf": model_bytes})
    store = hub_store(server, tmp_path / "cache")
    model = store.pull(REPOSITORY)
    assert model.name == f"{REPOSITORY}:some model.gguf"
    assert model.path.read_bytes() == model_bytes
    server.requests.clear()
    assert store.pull(REPOSITORY) == model
    assert store.resolve(REPOSITORY, is_offline=True).path == model.path
    assert store.resolve(model.name, is_offline=True).name == model.name
    assert server.requests == []


def test_usual_quantization_is_chosen_and_others_by_name(server: PackageServer, tmp_path: Path, model_bytes: bytes):
    names = ["big/model-Q8_0.gguf", "model-Q4_K_M.gguf", "model-Q4_0.gguf"]
    publish(server, dict.fromkeys(names, model_bytes))
    store = hub_store(server, tmp_path / "cache")
    assert store.pull(REPOSITORY).path.name == "model-Q4_K_M.gguf"
    assert store.pull(f"{REPOSITORY}:big/model-Q8_0.gguf").path.name == "model-Q8_0.gguf"
    with pytest.raises(
        ModelNotFoundError, match=r"has no file 'model-Q2_K\.gguf'; it has big/model-Q8_0\.gguf, model-"
    ):
        store.pull(f"{REPOSITORY}:model-Q2_K.gguf")


def test_ambiguous_repository_asks_for_a_file(server: PackageServer, tmp_path: Path, model_bytes: bytes):
    publish(server, {"model-q2_k.gguf": model_bytes, "model-q8_0.gguf": model_bytes})
    with pytest.raises(UsageError, match=r"name one file of .*; it has model-q2_k\.gguf, model-q8_0\.gguf"):
        hub_store(server, tmp_path / "cache").pull(REPOSITORY)


def test_split_model_is_pulled_whole(server: PackageServer, tmp_path: Path):
    parts = write_split_model(tmp_path)
    publish(server, {part.name: part.read_bytes() for part in parts} | {"other-00001-of-00002.gguf": b"x"})
    model = hub_store(server, tmp_path / "cache").pull(f"{REPOSITORY}:{parts[0].name}")
    assert [file.name for file in model.files] == [part.name for part in parts]
    assert [path.read_bytes() for path in sorted(model.path.parent.glob("*.gguf"))] == [p.read_bytes() for p in parts]


@pytest.mark.parametrize("change", ["another revision", "zeros", "too short"])
def test_a_finished_part_that_is_not_what_is_published_is_fetched_anew(
    server: PackageServer, tmp_path: Path, change: str
):
    parts = write_split_model(tmp_path)
    contents = [part.read_bytes() for part in parts]
    publish(server, {part.name: part.read_bytes() for part in parts})
    store = hub_store(server, tmp_path / "cache")
    workspace = store.cache.workspace(f"{REPOSITORY}:{parts[0].name}")
    stale = {
        "another revision": contents[0][:-1] + b"?",
        "zeros": bytes(len(contents[0])),
        "too short": contents[0][:-1],
    }
    for part, content in zip(parts, [stale[change], *contents[1:]], strict=True):
        (workspace / part.name).write_bytes(content)
    progress = RecordedProgress()
    model = store.pull(f"{REPOSITORY}:{parts[0].name}", progress=progress)
    assert [path.read_bytes() for path in sorted(model.path.parent.glob("*.gguf"))] == contents
    assert [request.path.rpartition("/")[2] for request in server.requests if "/resolve/" in request.path] == [
        parts[0].name
    ]
    (phase,) = progress.totals
    assert progress.totals[phase] == progress.sums[phase] == sum(map(len, contents))


def test_nothing_gets_its_name_before_it_is_on_the_disk(
    server: PackageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_bytes: bytes
):
    synced: set[int] = set()
    renamed: list[tuple[str, bool]] = []
    fsync, replace = os.fsync, Path.replace

    def recorded_fsync(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def recorded_replace(self: Path, target: Path) -> Path:
        renamed.append((target.name, self.stat().st_ino in synced))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "replace", recorded_replace)
    publish(server, {"model.gguf": model_bytes})
    hub_store(server, tmp_path / "cache").pull(REPOSITORY)
    assert renamed == [("model.gguf", True), ("model.gguf", True), ("record.json", True)]


def test_file_of_a_type_that_is_not_implemented_is_refused(server: PackageServer, tmp_path: Path):
    publish(server, {"model.gguf": write_unknown_weights(tmp_path / "original.gguf").read_bytes()})
    store = hub_store(server, tmp_path / "cache")
    with pytest.raises(UnsupportedModelError, match=r"has type IQ4_XS, which is not implemented; use another quant"):
        store.pull(REPOSITORY)
    assert store.cache.installed() == []
    assert list(store.cache.workspace(f"{REPOSITORY}:model.gguf").iterdir()) == []


def test_file_that_is_no_model_is_refused(server: PackageServer, tmp_path: Path):
    publish(server, {"model.gguf": b"GGUF, but only in name"})
    store = hub_store(server, tmp_path / "cache")
    with pytest.raises(CheckpointError, match="too few for a GGUF header"):
        store.pull(REPOSITORY)
    assert store.cache.installed() == []
    assert list(store.cache.workspace(f"{REPOSITORY}:model.gguf").iterdir()) == []


def test_absent_repository_is_a_model_not_found(server: PackageServer, tmp_path: Path):
    server.fault = lambda request: Answer(status=404) if "/api/" in request.path else None
    server.error_code = "RepoNotFound"
    with pytest.raises(ModelNotFoundError, match="has no such repository"):
        hub_store(server, tmp_path / "cache").pull("test-owner/absent")


def test_failing_hub_is_a_download_error(server: PackageServer, tmp_path: Path):
    server.fault = lambda request: Answer(status=500) if "/api/" in request.path else None
    with pytest.raises(DownloadError, match="the model hub did not answer as expected"):
        hub_store(server, tmp_path / "cache").pull(REPOSITORY)


def test_unreachable_hub_is_a_download_error(tmp_path: Path):
    with pytest.raises(DownloadError, match=r"the model hub at http://127\.0\.0\.1:9 cannot be reached"):
        store_in(tmp_path, ENTRY, UNREACHABLE_HUB).pull(REPOSITORY)


def test_the_command_pull_asks_with_the_token_of_the_settings(
    server: PackageServer, tmp_path: Path, model_bytes: bytes
) -> None:
    publish(server, {"model-q4_k_m.gguf": model_bytes})
    (tmp_path / "paceline.yaml").write_text("hub_token: env:MY_TOKEN\n")
    environment = os.environ | {
        "HF_ENDPOINT": server.url,
        "MY_TOKEN": "of-the-settings",
        "PACELINE_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = [Path(sys.executable).with_name("paceline"), "pull", REPOSITORY]
    result = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    asked = [request for request in server.requests if REPOSITORY in request.path]
    assert len(asked) == 2
    assert {request.authorization for request in asked} == {"Bearer of-the-settings"}
