"""Settings are merged in the order defaults < file < environment < flags, and nothing unknown is ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.config import EngineConfig, ServerConfig, load_settings
from paceline.core.errors import ConfigError


@pytest.fixture(autouse=True)
def empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("PACELINE_CACHE_DIR", "PACELINE_ISA"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_defaults_are_the_schemas() -> None:
    settings = load_settings({"model": "tiny"})
    assert settings.engine == EngineConfig(model="tiny")
    assert settings.server == ServerConfig()


def test_each_source_overrides_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paceline.yaml").write_text("model: from-file\nmax_batch_size: 2\nport: 1\nnum_threads: 1\n")
    monkeypatch.setenv("PACELINE_MAX_BATCH_SIZE", "3")
    monkeypatch.setenv("PACELINE_PORT", "2")
    settings = load_settings({"port": 3, "host": None})
    assert settings.engine.model == "from-file"
    assert settings.engine.num_threads == 1
    assert settings.engine.max_batch_size == 3
    assert settings.server.port == 3
    assert settings.server.host == ServerConfig().host


@pytest.mark.parametrize(
    ("text", "expected"),
    [("none", ()), ("ngram", ("ngram",)), ("suffix, shared-layers", ("suffix", "shared-layers"))],
)
def test_drafters_are_names_joined_by_commas(text: str, expected: tuple[str, ...], monkeypatch) -> None:
    assert load_settings({"model": "tiny", "drafters": text}).engine.drafters == expected
    monkeypatch.setenv("PACELINE_DRAFTERS", text)
    assert load_settings({"model": "tiny"}).engine.drafters == expected


def test_the_suffix_store_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings({"model": "tiny"}).engine.suffix_store_tokens > 0
    assert load_settings({"model": "tiny", "suffix_store_tokens": 0}).engine.suffix_store_tokens == 0
    monkeypatch.setenv("PACELINE_SUFFIX_STORE_TOKENS", "-1")
    with pytest.raises(ConfigError, match="suffix_store_tokens cannot be '-1'"):
        load_settings({"model": "tiny"})


def test_first_layers_draft_only_where_their_number_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings({"model": "tiny"}).engine.shared_layers is None
    assert load_settings({"model": "tiny", "shared_layers": 6}).engine.shared_layers == 6
    monkeypatch.setenv("PACELINE_SHARED_LAYERS", "7")
    assert load_settings({"model": "tiny"}).engine.shared_layers == 7
    with pytest.raises(ConfigError, match="shared_layers cannot be -1"):
        load_settings({"model": "tiny", "shared_layers": -1})


@pytest.mark.parametrize("name", ["draft_vocab_size", "draft_weight_bits"])
def test_a_draft_model_can_be_left_whole(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert getattr(load_settings({"model": "tiny"}).engine, name) == {"draft_vocab_size": 49152}.get(name, 4)
    assert getattr(load_settings({"model": "tiny", name: "all"}).engine, name) is None
    (tmp_path / "paceline.yaml").write_text(f"model: tiny\n{name}: null\n")
    assert getattr(load_settings({}).engine, name) is None
    monkeypatch.setenv(f"PACELINE_{name.upper()}", "4")
    assert getattr(load_settings({}).engine, name) == 4
    with pytest.raises(ConfigError, match=f"{name} cannot be"):
        load_settings({name: "0"})
    with pytest.raises(ConfigError, match=f"{name} cannot be 'few'"):
        load_settings({name: "few"})


def test_drafters_may_be_a_list_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("model: tiny\ndrafters: [draft-model]\n")
    assert load_settings({}, file=Path("other.yaml")).engine.drafters == ("draft-model",)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "model is missing: give it as an argument, in paceline.yaml or as PACELINE_MODEL"),
        ({"model": "tiny", "windw": 3}, "windw is not a setting: remove it or correct its name"),
        ({"model": "tiny", "port": 70000}, "port cannot be 70000: input should be less than or equal to 65535"),
        ({"model": "tiny", "kv_cache_type": "q4"}, "kv_cache_type cannot be 'q4': input should be 'f16' or 'q8'"),
    ],
)
def test_a_bad_flag_is_named(flags: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(flags)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_an_unknown_key_in_the_file_fails(tmp_path: Path) -> None:
    (tmp_path / "paceline.yaml").write_text("model: tiny\ncontext_size: 4\n")
    with pytest.raises(ConfigError, match="context_size is not a setting"):
        load_settings({})


@pytest.mark.parametrize("text", ["model: [", "- a\n- b\n", "\x00"])
def test_a_malformed_file_fails(text: str, tmp_path: Path) -> None:
    (tmp_path / "paceline.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"paceline\.yaml"):
        load_settings({"model": "tiny"})


def test_a_named_file_that_is_absent_fails() -> None:
    with pytest.raises(ConfigError, match=r"settings file absent\.yaml does not exist"):
        load_settings({"model": "tiny"}, file=Path("absent.yaml"))


def test_an_unknown_variable_fails_and_foreign_ones_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE_DIR", "/nowhere")
    assert load_settings({"model": "tiny"}).engine.model == "tiny"
    monkeypatch.setenv("PACELINE_PROT", "1")
    with pytest.raises(ConfigError, match="PACELINE_PROT is not a setting"):
        load_settings({"model": "tiny"})
