"""The model store: what names and paths mean, importing local files, and listing and removing models."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.checkpoint import (
    CATALOG,
    DEFAULT_MODEL_NAME,
    ModelStore,
    default_cache_dir,
    list_models,
    pull,
    remove_model,
    resolve_model,
)
from paceline.core.errors import CheckpointError, ModelNotFoundError, UnsupportedModelError, UsageError
from tests.checkpoint.pull_support import ENTRY, store_in
from tests.checkpoint.small_gguf import write_small_gguf, write_unknown_weights
from tests.checkpoint.test_gguf import write_split_model


@pytest.fixture
def small_path(tmp_path: Path) -> Path:
    return write_small_gguf(tmp_path / "small.gguf")


def store_that_knows(path: Path, directory: Path) -> ModelStore:
    """Returns a store whose only catalog entry has the checksum of the file at `path`."""
    content = path.read_bytes()
    entry = replace(ENTRY, sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))
    return store_in(directory, entry)


def test_catalog_is_consistent():
    assert set(CATALOG) == {"smollm2-135m", "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "gemma3-270m"}
    assert CATALOG[DEFAULT_MODEL_NAME].default_draft_name == "qwen2.5-coder-0.5b"
    for name, entry in CATALOG.items():
        assert entry.name == name
        assert len(bytes.fromhex(entry.sha256)) == 32
        assert entry.default_draft_name is None or entry.default_draft_name in CATALOG
        assert [type(source).__name__ for source in entry.sources] == ["HubSource", "PackageSource"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PACELINE_CACHE_DIR": "/data/models", "XDG_CACHE_HOME": "/xdg"}, Path("/data/models")),
        ({"XDG_CACHE_HOME": "/xdg"}, Path("/xdg/paceline")),
        ({"PACELINE_CACHE_DIR": "~/models"}, Path.home() / "models"),
        ({}, Path.home() / ".cache" / "paceline"),
    ],
)
def test_cache_directory(environment: dict[str, str], expected: Path):
    assert default_cache_dir(environment) == expected


def test_a_path_is_used_as_it_is(small_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    resolved = store_in(tmp_path / "cache").resolve(str(small_path), is_offline=True)
    assert (resolved.name, resolved.path, resolved.default_draft_name) == ("small", small_path, None)
    monkeypatch.chdir(tmp_path)
    assert store_in(tmp_path / "cache").resolve("small.gguf").path == Path("small.gguf")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("reference", ["absent.gguf", "./absent", "../absent.gguf", "/absent/model", "~/absent.gguf"])
def test_a_path_to_nothing_is_not_taken_for_a_name(tmp_path: Path, reference: str):
    with pytest.raises(ModelNotFoundError, match="there is no such file"):
        store_in(tmp_path).resolve(reference)


def test_a_directory_is_refused(tmp_path: Path):
    with pytest.raises(ModelNotFoundError, match=r"this is a directory; name a \.gguf file in it"):
        store_in(tmp_path).resolve(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("test-modle", "did you mean test-model?"),
        ("qqqqqqq", "the catalog has test-model"),
        ("", "the catalog has test-model"),
        ("..", "this is a directory|the catalog has test-model"),
        ("x" * 300, "File name too long"),
        ("null\0byte", "the catalog has test-model"),
        ("owner/name/more", "the catalog has test-model"),
        ("owner/name:file.bin", "the catalog has test-model"),
    ],
)
@pytest.mark.parametrize("is_offline", [False, True])
def test_unknown_names_get_advice(tmp_path: Path, name: str, advice: str, is_offline: bool):
    with pytest.raises(ModelNotFoundError, match=advice):
        store_in(tmp_path).resolve(name, is_offline=is_offline)


def test_local_file_with_a_catalog_checksum_becomes_that_model(small_path: Path, tmp_path: Path):
    store = store_that_knows(small_path, tmp_path / "cache")
    model = store.pull(str(small_path))
    assert model.name == ENTRY.name
    assert model.path.read_bytes() == small_path.read_bytes()
    assert store.resolve(ENTRY.name, is_offline=True).default_draft_name == "test-draft"
    assert store.pull(str(small_path)) == model


def test_local_file_is_copied_under_its_own_name(small_path: Path, tmp_path: Path):
    store = store_in(tmp_path / "cache")
    model = store.pull(str(small_path))
    assert model.name == "small"
    assert model.source == f"file ({small_path})"
    small_path.unlink()
    assert store.resolve("small", is_offline=True).path == model.path
    assert [installed.name for installed in store.cache.installed()] == ["small"]
    with pytest.raises(ModelNotFoundError, match="did you mean small"):
        store.resolve("smal")


def test_local_split_model_is_copied_whole(tmp_path: Path):
    parts = write_split_model(tmp_path)
    model = store_in(tmp_path / "cache").pull(str(parts[0]))
    assert [file.name for file in model.files] == [part.name for part in parts]
    assert model.size_bytes == sum(part.stat().st_size for part in parts)
    assert [path.read_bytes() for path in sorted(model.path.parent.glob("*.gguf"))] == [p.read_bytes() for p in parts]


def test_local_file_that_is_no_model_is_refused(tmp_path: Path):
    path = tmp_path / "notes.gguf"
    path.write_text("this is not a model, but a text of some length")
    with pytest.raises(CheckpointError, match="is not a GGUF file"):
        store_in(tmp_path / "cache").pull(str(path))
    assert store_in(tmp_path / "cache").cache.installed() == []


def test_names_do_not_change_their_meaning(small_path: Path, tmp_path: Path):
    store = store_in(tmp_path / "cache")
    impostor = small_path.rename(tmp_path / "test-model.gguf")
    with pytest.raises(UsageError, match="test-model is the name of another model in the catalog; rename the file"):
        store.pull(str(impostor))
    first = impostor.rename(tmp_path / "mine.gguf")
    store.pull(str(first))
    write_small_gguf(first, alignment=64)
    with pytest.raises(UsageError, match="another model named mine is installed; run paceline rm mine"):
        store.pull(str(first))


def test_catalog_name_means_the_catalog_even_beside_such_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path(ENTRY.name).write_text("some file")
    with pytest.raises(ModelNotFoundError, match="offline mode forbids"):
        store_in(tmp_path / "cache").resolve(ENTRY.name, is_offline=True)


def test_removed_model_is_gone(small_path: Path, tmp_path: Path):
    store = store_in(tmp_path / "cache")
    path = store.pull(str(small_path)).path
    store.cache.workspace("small").joinpath("left.part").write_bytes(b"x")
    store.cache.remove("small")
    assert not path.exists()
    assert store.cache.installed() == []
    assert list((tmp_path / "cache" / "downloads").iterdir()) == []
    with pytest.raises(ModelNotFoundError, match="model 'small' is not installed; installed: nothing"):
        store.cache.remove("small")


@pytest.mark.parametrize("name", ["", ".", "..", "../models", "a/../../b", "x" * 300])
def test_only_models_can_be_removed(small_path: Path, tmp_path: Path, name: str):
    store = store_in(tmp_path / "cache")
    store.pull(str(small_path))
    with pytest.raises(ModelNotFoundError, match="is not installed; installed: small"):
        store.cache.remove(name)
    assert [model.name for model in store.cache.installed()] == ["small"]


def test_malformed_record_is_reported_and_can_be_removed(small_path: Path, tmp_path: Path):
    store = store_in(tmp_path / "cache")
    model = store.pull(str(small_path))
    (model.path.parent / "record.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"record\.json: the record is malformed"):
        store.resolve("small")
    store.cache.remove("small")
    assert store.cache.installed() == []


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b'{"name": 3}', b"\xff"])
def test_a_malformed_record_hides_no_other_model(
    small_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
):
    store = store_in(tmp_path / "cache")
    sound = store.pull(str(small_path))
    broken = store.pull(str(small_path.rename(tmp_path / "my model.gguf")))
    record = broken.path.parent / "record.json"
    record.write_bytes(content)
    assert store.cache.installed() == [sound]
    assert f"{record}: the record is malformed" in caplog.text
    assert "run paceline rm my model, and pull the model again" in caplog.text
    with pytest.raises(ModelNotFoundError, match="offline mode forbids"):
        store.resolve("some-owner/some-repository", is_offline=True)
    with pytest.raises(ModelNotFoundError, match="did you mean small"):
        store.resolve("smal")


def test_a_record_can_be_read_by_all_who_can_read_the_model(small_path: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.write_bytes(b"")
    model = store_in(tmp_path / "cache").pull(str(small_path))
    assert [path.name for path in model.path.parent.glob("record*")] == ["record.json"]
    assert (model.path.parent / "record.json").stat().st_mode == other.stat().st_mode


def test_local_file_of_a_type_that_is_not_implemented_is_refused(tmp_path: Path):
    path = write_unknown_weights(tmp_path / "small.gguf")
    with pytest.raises(UnsupportedModelError, match=r"small\.gguf: tensor 'blk\.0\.attn_q\.weight' has type IQ4_XS"):
        store_in(tmp_path / "cache").pull(str(path))
    assert not (tmp_path / "cache").exists()


def test_functions_work_on_the_cache_of_the_environment(
    small_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PACELINE_CACHE_DIR", str(tmp_path / "chosen"))
    model = pull(str(small_path))
    assert model.path.is_relative_to(tmp_path / "chosen")
    assert list_models() == [model]
    assert resolve_model("small", is_offline=True).path == model.path
    remove_model("small")
    assert list_models() == []
