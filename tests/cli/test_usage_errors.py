"""A wrong use is refused before anything is downloaded or loaded. The message says which value is wrong; usage errors
exit with 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.main import app
from paceline.engine import assembly
from tests.cli.conftest import RunCommand, RunOnBytes
from tests.support.tiny_gguf import TinyPair, write_tiny_gguf


@pytest.mark.parametrize("command", [("generate", "m", "p"), ("chat", "m"), ("bench", "m"), ("bench", "tasks", "m")])
@pytest.mark.parametrize("value", ["100.1", "nan"])
def test_a_temperature_out_of_range_is_the_options_error(
    command: tuple[str, ...], value: str, paceline: RunCommand
) -> None:
    result = paceline(*command, "--temperature", value)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("Error: Invalid value for '--temperature'")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--top-p", "nan"),
        ("--top-p", "1.5"),
        ("--min-p", "nan"),
        ("--min-p", "-0.1"),
        ("--top-k", "0"),
        ("--top-k", str(2**64)),
        ("--seed", str(2**64)),
        ("--max-tokens", "0"),
        ("--stop", ""),
    ],
)
def test_a_sampling_option_out_of_range_is_the_options_error(option: str, value: str, paceline: RunCommand) -> None:
    result = paceline("generate", "m", "p", option, value)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith(f"Error: Invalid value for '{option}'")


def test_the_bounds_of_options_are_those_of_the_engine(paceline: RunCommand, tiny_pair: TinyPair) -> None:
    highest = ("--temperature", 100, "--top-p", 1, "--min-p", 1, "--top-k", 2**31 - 1, "--seed", 2**64 - 1)
    lowest = ("--temperature", 0, "--top-p", 0, "--min-p", 0, "--top-k", 1, "--seed", 0)
    for options in (highest, lowest):
        result = paceline("generate", tiny_pair.target, "x", "--max-tokens", 1, *options)
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (["list"], {}, "this user has no home directory to keep models in; set PACELINE_CACHE_DIR to a directory"),
        (["list"], {"PACELINE_CACHE_DIR": "~/models"}, "~/models: ~ has no home directory; write the whole path"),
        (["pull", "~nobody/a"], {"PACELINE_CACHE_DIR": "/tmp"}, "~nobody/a: ~nobody has no home directory"),
    ],
)
def test_a_user_without_a_home_directory_is_told_what_to_set(
    arguments: list[str], variables: dict[str, str], message: str
) -> None:
    """The user database has no entry for the user id, as in a container that runs with an arbitrary user id."""
    script = f"import os, pwd; pwd.getpwuid = pwd.getpwnam = {{}}.__getitem__; os.getuid = lambda: {2**31 - 2}"
    script += "; from paceline.cli.main import app; app()"
    kept = {name: value for name, value in os.environ.items() if name != "HOME"}
    environment = {name: value for name, value in kept.items() if not name.startswith(("PACELINE_", "XDG_"))}
    command = [sys.executable, "-c", script, *arguments]
    result = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith(f"error: {message}")


@pytest.mark.parametrize("command", [("generate", "x"), ("serve", "--port", 0)])
def test_a_context_that_the_model_was_not_made_for_is_refused_with_both_numbers(
    command: tuple[str, ...], paceline: RunCommand, tmp_path: Path
) -> None:
    model = write_tiny_gguf(tmp_path / "short.gguf", "llama", "Q4_K", context_length=2048)
    name, *arguments = command
    result = paceline(name, model, *arguments, "--context-window-size", 4096)
    assert result.returncode == 2
    assert "error: context_window_size is 4096, but tiny llama was made for at most 2048 tokens" in result.stderr


@pytest.mark.parametrize("option", ["--stop", "--system", None])
def test_bytes_that_are_no_text_are_refused(option: str | None, paceline_on_bytes: RunOnBytes) -> None:
    result = paceline_on_bytes("generate", "m", *((b"a\xff",) if option is None else ("p", option, b"a\xff")))
    assert result.returncode == 2
    assert b"it is not UTF-8 text from character 1 on" in result.stderr


def test_standard_input_that_is_no_text_is_refused(paceline_on_bytes: RunOnBytes) -> None:
    result = paceline_on_bytes("generate", "m", "-", stdin=b"abc\xff")
    assert result.returncode == 2
    assert result.stderr == b"error: standard input is not UTF-8 text from byte 3 on; convert it\n"


def test_a_system_message_is_used_or_refused(paceline: RunCommand, tiny_pair: TinyPair, tmp_path: Path) -> None:
    raw = paceline("generate", "m", "p", "--raw", "--system", "be short")
    assert raw.returncode == 2
    assert raw.stderr.startswith("error: --system needs the chat template, which --raw leaves out")
    plain = write_tiny_gguf(tmp_path / "plain.gguf", "qwen2", "Q4_K", chat_template=None)
    without = paceline("generate", plain, "p", "--system", "be short")
    assert without.returncode == 2
    assert without.stderr == "error: --system needs a chat template, which plain does not have; leave it out\n"
    options = ("--max-tokens", 8, "--drafters", "none")
    answers = [
        paceline("generate", tiny_pair.target, "p", *options, *system) for system in ((), ("--system", "be short"))
    ]
    assert [answer.returncode for answer in answers] == [0, 0]
    assert answers[0].stdout != answers[1].stdout


@pytest.fixture
def _no_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def load(*arguments: object, **options: object) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(assembly, "load_model", load)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACELINE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    task = {"id": "a-1", "task": "a", "max_tokens": 6, "messages": [{"role": "user", "content": "hello"}]}
    path = tmp_path / "tasks.jsonl"
    path.write_text(f"{json.dumps(task)}\n")
    return path


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.stderr


@pytest.mark.usefixtures("_no_weights")
@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("generate", "", "--raw"), 2, "the prompt is empty"),
        (("generate", "x" * 200, "--raw", "--context-window-size", 100), 1, "choose a larger --context-window-size"),
        (("generate", "x", "--context-window-size", 5000), 2, "was made for at most 2048 tokens"),
        (("generate", "x", "--shared-layers", 3), 2, "has 3 layers; choose 1 to 2"),
        (("chat", "--context-window-size", 5000), 2, "was made for at most 2048 tokens"),
        (("generate", "x", "--drafters", "suffix,oracle"), 2, "there is no drafter named 'oracle'; choose from suffix"),
    ],
)
def test_it_is_found_before_weights_are_loaded(
    arguments: tuple[object, ...], exit_code: int, message: str, tiny_pair: TinyPair, tasks: Path
) -> None:
    words = [word for word in arguments if word in ("generate", "chat", "bench")]
    options = arguments[len(words) :]
    workload = ("--tasks", tasks) if words[0] == "bench" else ()
    actual_code, stderr = run(*words, tiny_pair.target, *options, *workload)
    assert stderr.startswith("error: ")
    assert message in stderr
    assert actual_code == exit_code


@pytest.mark.usefixtures("_no_weights")
def test_a_pair_of_strangers_is_refused_before_weights_are_loaded(tiny_pair: TinyPair, tmp_path: Path) -> None:
    other = write_tiny_gguf(tmp_path / "other.gguf", "qwen2", "Q4_K", vocab_size=300)
    exit_code, stderr = run("generate", tiny_pair.target, "x", "--draft-model", other)
    assert (exit_code, "has another vocabulary" in stderr) == (2, True)


@pytest.mark.usefixtures("_no_weights")
def test_bench_refuses_models_that_cannot_chat(tasks: Path, tmp_path: Path) -> None:
    plain = write_tiny_gguf(tmp_path / "plain.gguf", "qwen2", "Q4_K", chat_template=None)
    exit_code, stderr = run("bench", plain, "--tasks", tasks)
    assert exit_code == 2
    assert stderr == "error: plain has no chat template; choose a model made for chats\n"


@pytest.mark.usefixtures("_no_weights", "tasks")
@pytest.mark.parametrize(
    ("command", "options"),
    [
        (("generate",), ("x",)),
        (("generate",), ("x", "--raw")),
        (("chat",), ()),
        (("bench", "tasks"), ("--tasks", "tasks.jsonl")),
    ],
)
def test_a_chat_template_that_does_not_compile_is_found_before_weights_are_loaded(
    command: tuple[str, ...], options: tuple[str, ...], tmp_path: Path
) -> None:
    faulty = write_tiny_gguf(tmp_path / "faulty.gguf", "qwen2", "Q4_K", chat_template="{% for message in %}")
    exit_code, stderr = run(*command, faulty, *options)
    assert stderr.startswith("error: the model's chat template does not compile (line 1: Expected an expression")
    assert exit_code == 1


def test_the_smallest_context_window_starts_in_automatic_mode(paceline: RunCommand, tiny_pair: TinyPair) -> None:
    options = ("--raw", "--context-window-size", 16, "--draft-model", tiny_pair.draft)
    automatic = paceline("generate", tiny_pair.target, "abc", *options)
    plain = paceline("generate", tiny_pair.target, "abc", *options, "--drafters", "none")
    assert automatic.returncode == plain.returncode == 0, automatic.stderr
    assert automatic.stdout == plain.stdout
    refused = paceline("generate", tiny_pair.target, "abc", "--context-window-size", 15)
    assert refused.returncode == 2


def test_more_threads_than_can_be_started_are_refused(paceline: RunCommand) -> None:
    result = paceline("generate", "m", "p", "--threads", 100_000)
    assert result.returncode == 2
    assert result.stderr == "error: num_threads cannot be 100000: input should be less than or equal to 1024\n"
