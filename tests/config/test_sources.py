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


@pytest.mark.parametrize("text", ["speculation: off\n", "speculation:\n  mode: off\n", "speculation: 'off'\n"])
def test_speculation_is_turned_off_in_the_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "paceline.yaml").write_text(f"model: tiny\n{text}")
    assert load_settings({}).engine.speculation == "off"


def test_an_empty_section_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "paceline.yaml").write_text("model: tiny\nspeculation:\n# mode: off\nserver: {}\nengine: null\n")
    assert load_settings({}).engine == EngineConfig(model="tiny")


@pytest.mark.parametrize(
    ("setting", "value"),
    [("max_batch_size", "true"), ("port", "yes"), ("host", "''"), ("model", "''"), ("num_speculative_tokens", "false")],
)
def test_truth_values_and_empty_names_are_refused(setting: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(f"{setting}: {value}\n")
    with pytest.raises(ConfigError, match=rf"{setting} cannot be .* \(other.yaml, line 1\)"):
        load_settings({}, file=Path("other.yaml"))


def test_flags_and_guides_names_are_understood_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_THREADS", "3")
    monkeypatch.setenv("PACELINE_SPECULATION_WINDOW", "5")
    settings = load_settings({"model": "tiny"})
    assert (settings.engine.num_threads, settings.engine.num_speculative_tokens) == (3, 5)
    assert settings.origins["num_threads"] == "PACELINE_THREADS"
    monkeypatch.setenv("PACELINE_NUM_THREADS", "4")
    with pytest.raises(ConfigError, match=r"PACELINE_\w*THREADS and PACELINE_\w*THREADS are the same setting"):
        load_settings({"model": "tiny"})


def test_what_kubernetes_says_of_a_service_called_paceline_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT_8000_TCP", "PORT_8000_TCP_ADDR"):
        monkeypatch.setenv(f"PACELINE_{variable}", "10.0.0.1")
    monkeypatch.setenv("PACELINE_PORT", "tcp://10.96.0.12:8000")
    assert load_settings({"model": "tiny"}).server.port == 8000


def test_a_date_is_a_text(tmp_path: Path) -> None:
    (tmp_path / "paceline.yaml").write_text("model: 2024-13-01\n")
    assert load_settings({}).engine.model == "2024-13-01"


@pytest.mark.parametrize(
    "text", ["hub_token: [s3cret]\n", "hub_token: 53cre7\n", 'hub_token: "s3cret\n', "hub_token: {s3cret: 1}\n"]
)
def test_no_message_repeats_a_secret(text: str, tmp_path: Path) -> None:
    (tmp_path / "paceline.yaml").write_text(f"model: tiny\n{text}")
    with pytest.raises(ConfigError) as caught:
        load_settings({})
    assert "s3cret" not in str(caught.value)
    assert "53cre7" not in str(caught.value)


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
    with pytest.raises(ConfigError, match="line 2: context_size is not a setting"):
        load_settings({})


@pytest.mark.parametrize("text", ["model: [", "- a\n- b\n", "\x00", "port: !!int x\n", f"model: {'[' * 3000}"])
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
    with pytest.raises(ConfigError, match="PACELINE_PROT is not a setting: did you mean port"):
        load_settings({"model": "tiny"})


SECTIONED = """\
# a team's file
engine:
  model: tiny
  max_batch_size: 2
speculation:
  mode: fixed
  num_speculative_tokens: 5
  drafters: [suffix, ngram]
server:
  port: 9000
"""


def test_a_file_may_have_sections(tmp_path: Path) -> None:
    (tmp_path / "paceline.yaml").write_text(SECTIONED)
    settings = load_settings({})
    expected = EngineConfig(
        model="tiny",
        max_batch_size=2,
        speculation="fixed",
        num_speculative_tokens=5,
        drafters=("suffix", "ngram"),
    )
    assert settings.engine == expected
    assert settings.server == ServerConfig(port=9000)


def test_flat_keys_and_sections_mean_the_same(tmp_path: Path) -> None:
    flat = {"model: tiny", "max_batch_size: 2", "speculation: fixed", "num_speculative_tokens: 5", "port: 9000"}
    (tmp_path / "paceline.yaml").write_text("\n".join([*flat, "drafters: suffix, ngram"]))
    (tmp_path / "sections.yaml").write_text(SECTIONED)
    flat_settings, sectioned = load_settings({}), load_settings({}, file=Path("sections.yaml"))
    assert (flat_settings.engine, flat_settings.server) == (sectioned.engine, sectioned.server)


def test_every_value_knows_where_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paceline.yaml").write_text(SECTIONED)
    monkeypatch.setenv("PACELINE_NUM_THREADS", "3")
    monkeypatch.setenv("PACELINE_PORT", "9001")
    origins = load_settings({"drafters": "none"}).origins
    assert origins["max_batch_size"] == "paceline.yaml, line 4"
    assert origins["speculation"] == "paceline.yaml, line 6"
    assert origins["num_threads"] == "PACELINE_NUM_THREADS"
    assert origins["port"] == "PACELINE_PORT"
    assert origins["drafters"] == "command line"
    assert origins["host"] == "default"
    assert origins.keys() == EngineConfig.model_fields.keys() | ServerConfig.model_fields.keys()


def test_the_guides_names_are_understood(tmp_path: Path) -> None:
    text = """
model_path: tiny
draft_model_path: small
max_context_length: 512
coordination:
  speculation_window: 7
  batch_size: 4
  fallback_threshold: 0.3
"""
    (tmp_path / "paceline.yaml").write_text(text)
    expected = EngineConfig(
        model="tiny",
        draft_model="small",
        context_window_size=512,
        num_speculative_tokens=7,
        max_batch_size=4,
        fallback_threshold=0.3,
    )
    assert load_settings({}).engine == expected
    (tmp_path / "paceline.yaml").write_text("model: tiny\nspeculation:\n  speculation_window: 3\n")
    assert load_settings({}).engine.num_speculative_tokens == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port: 1\nserver:\n  port: 2\n", r"port \(line 1\) and server\.port \(line 3\) are the same setting"),
        (
            "draft_model: a\ndraft_model_path: b\n",
            r"draft_model \(line 1\) and draft_model_path \(line 2\) are the same",
        ),
        ("port: 1\nport: 2\n", r"port \(line 1\) and port \(line 2\)"),
        ("engine:\n  port: 2\n", r"engine\.port stands in the wrong section: move it to server"),
        ("engine:\n  prot: 2\n", r"line 2: engine\.prot is not a setting: did you mean port or fronts\?"),
        ("coordination:\n  port: 2\n", r"coordination\.port is not a setting; known are speculation_window,"),
        ("engine: fast\n", "engine is not a setting"),
        ("[a]: 2\n", "line 1: a setting's name must be a plain word"),
        ("max_batch_size: 0\n", r"max_batch_size cannot be 0 \(paceline\.yaml, line 1\): input should be greater"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "paceline.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_settings({"model": "tiny"})


def test_all_faults_are_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_PORT", "http")
    with pytest.raises(ConfigError) as caught:
        load_settings({"max_batch_size": 0})
    faults = str(caught.value).split("; ")
    assert {fault.split()[0] for fault in faults} == {"max_batch_size", "model", "port"}
    assert faults[-1].startswith("port cannot be 'http' (PACELINE_PORT): ")


def test_a_secret_is_given_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    monkeypatch.setenv("MY_TOKEN", "from-environment")
    monkeypatch.setenv("HOME", str(tmp_path))
    for reference, value in (
        ("file:token", "s3cret"),
        ("file:~/token", "s3cret"),
        ("env:MY_TOKEN", "from-environment"),
    ):
        settings = load_settings({"model": "tiny", "hub_token": reference})
        assert settings.engine.read_hub_token() == value
        assert value not in settings.engine.model_dump_json() + repr(settings)


def test_a_secret_in_the_open_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="hub_token cannot be the secret itself: say where the secret is") as caught:
        load_settings({"model": "tiny", "hub_token": "hf_abcdef"})
    assert "hf_abcdef" not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("env:NOT_THERE", "hub_token is env:NOT_THERE, but the environment variable NOT_THERE is not set: set it"),
        (
            "file:absent",
            "hub_token is file:absent, but the file absent cannot be read .No such file or directory.: set it",
        ),
        ("file:empty", "hub_token is file:empty, but the file empty is empty: set it"),
    ],
)
def test_a_secret_that_is_not_there_says_where_it_should_be(reference: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    settings = load_settings({"model": "tiny", "hub_token": reference})
    with pytest.raises(ConfigError, match=message):
        settings.engine.read_hub_token()
