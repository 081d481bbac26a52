"""Runs the commands as users do: what they print and where, and their exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import paceline as package
from paceline import Engine, EngineConfig, SamplingParams
from tests.cli.conftest import COMMAND, RunCommand
from tests.support.tiny_gguf import TinyPair


def test_version(paceline: RunCommand) -> None:
    result = paceline("--version")
    assert result.returncode == 0
    assert result.stdout.startswith(f"paceline {package.__version__} ")


def test_help_names_every_command(paceline: RunCommand) -> None:
    result = paceline("--help")
    assert result.returncode == 0
    listed = [line.split()[0] for line in result.stdout.split("Commands:")[1].splitlines() if line.strip()]
    assert listed == ["serve", "generate", "chat", "pull", "list", "rm", "verify", "config", "bench"]


def test_generate_prints_what_the_engine_says(paceline: RunCommand, tiny_pair: TinyPair) -> None:
    result = paceline("generate", tiny_pair.target, "-", "--raw", "--max-tokens", 12, stdin="abcd")
    engine = Engine(EngineConfig(model=str(tiny_pair.target), drafters=()))
    expected = engine.generate(["abcd"], SamplingParams(max_tokens=12, temperature=0.0))[0].text
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{expected}\n"


def test_generate_takes_its_model_from_settings(paceline: RunCommand, tiny_pair: TinyPair, tmp_path: Path) -> None:
    options = ("--raw", "--max-tokens", 12)
    expected = paceline("generate", tiny_pair.target, "abcd", *options).stdout
    assert paceline("generate", "--model-path", tiny_pair.target, "abcd", *options).stdout == expected
    (tmp_path / "paceline.yaml").write_text(f"model: {tiny_pair.target}\n")
    assert paceline("generate", "abcd", *options).stdout == expected
    without = paceline("generate", *options)
    assert without.returncode == 2
    assert "there is no prompt" in without.stderr


def test_generate_is_the_same_with_and_without_drafts(paceline: RunCommand, tiny_pair: TinyPair) -> None:
    sampling = ("--max-tokens", 24, "--temperature", 0.8, "--top-p", 0.95, "--seed", 3)
    plain = paceline("generate", tiny_pair.target, "tell me", "--drafters", "none", *sampling)
    drafted = paceline(
        *("generate", tiny_pair.target, "tell me", "--draft-model", tiny_pair.draft, "--show-drafts"),
        *("--speculation", "fixed"),
        *sampling,
    )
    assert plain.returncode == drafted.returncode == 0, drafted.stderr
    assert drafted.stdout == plain.stdout
    assert plain.stderr == ""
    assert drafted.stderr.startswith("24 tokens in ")
    assert "draft-model" in drafted.stderr


def test_chat_answers_until_the_input_ends(paceline: RunCommand, tiny_pair: TinyPair) -> None:
    result = paceline("chat", tiny_pair.target, "--max-tokens", 5, stdin="hello\n\nagain\n")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("> ") == 4  # two questions, an empty line, the end of input


def test_models_are_pulled_listed_and_removed(paceline: RunCommand, tiny_pair: TinyPair, tmp_path: Path) -> None:
    name = tiny_pair.target.stem
    pulled = paceline("pull", tiny_pair.target)
    assert pulled.returncode == 0, pulled.stderr
    assert pulled.stdout.startswith(f"{name}: ")
    listed = {model["name"]: model for model in json.loads(paceline("list", "--json").stdout)}
    assert listed[name]["is_installed"] is True
    assert listed[name]["size_bytes"] == tiny_pair.target.stat().st_size
    assert listed["qwen2.5-coder-1.5b"]["is_installed"] is False
    assert listed["qwen2.5-coder-1.5b"]["default_draft_name"] == "qwen2.5-coder-0.5b"
    assert f"{name} " in paceline("list").stdout
    assert paceline("generate", name, "x", "--max-tokens", 1, "--offline").returncode == 0
    (record,) = (tmp_path / "cache").glob("models/*/record.json")
    record.write_bytes(b"")
    result = paceline("list")
    assert (result.returncode, result.stderr.count("\n")) == (0, 1)
    assert f"{record}: the record is malformed" in result.stderr
    assert f"{name} " not in result.stdout
    assert paceline("rm", name).stdout == f"removed {name}\n"
    assert name not in paceline("list").stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("rm", "nothing"), 2, "model 'nothing' is not installed"),
        (("generate", "no-such-model", "x"), 2, "there is no model or file named 'no-such-model'"),
        (("generate", "./absent.gguf", "x"), 2, "there is no such file"),
        (("generate", "qwen2.5-coder-1.5b", "x", "--offline"), 2, "offline mode forbids"),
        (("serve",), 2, "model is missing"),
        (("generate",), 2, "model is missing"),
        (("generate", "x"), 2, "model is missing"),
        (("serve", "x", "--port", "70000"), 2, "port cannot be 70000"),
        (("serve", "x", "--drafters", "oracle"), 2, "there is no drafter named 'oracle'"),
        (("chat", "x", "--config", "absent.yaml"), 2, "settings file absent.yaml does not exist"),
    ],
)
def test_a_wrong_use_is_one_line_on_stderr(
    arguments: tuple[str, ...], exit_code: int, message: str, paceline: RunCommand
) -> None:
    result = paceline(*arguments)
    assert result.returncode == exit_code
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [("frobnicate",), ("serve", "--no-such-flag"), ("generate", "m", "p", "--top-p", "7")]
)
def test_a_wrong_flag_exits_with_2(arguments: tuple[str, ...], paceline: RunCommand) -> None:
    result = paceline(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: ")


def test_a_corrupt_model_exits_with_1(paceline: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(20))
    result = paceline("generate", path, "x")
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert "broken.gguf" in result.stderr
    assert result.stderr.count("\n") == 1


def test_settings_come_from_file_and_environment(paceline: RunCommand, tiny_pair: TinyPair, tmp_path: Path) -> None:
    (tmp_path / "paceline.yaml").write_text(f"model: {tiny_pair.target}\ncontext_window_size: 32\ndrafters: none\n")
    too_long = paceline("chat", "--max-tokens", 2, stdin="x" * 100)
    assert too_long.returncode == 1
    assert "32" in too_long.stderr
    enough = paceline("chat", "--max-tokens", 2, stdin="x" * 100, PACELINE_CONTEXT_WINDOW_SIZE="512")
    assert enough.returncode == 0, enough.stderr


def test_config_shows_every_setting_with_its_origin(paceline: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "paceline.yaml").write_text("engine:\n  model: tiny\n  hub_token: env:HF_SECRET\n")
    arguments = ("config", "--speculative-tokens", 5)
    table = paceline(*arguments, PACELINE_PORT="9000", HF_SECRET="s3cret")
    assert table.returncode == 0, table.stderr
    lines = [line.split(maxsplit=2) for line in table.stdout.splitlines()]
    assert ["model", '"tiny"', "paceline.yaml, line 2"] in lines
    assert ["num_speculative_tokens", "5", "command line"] in lines
    assert ["port", "9000", "PACELINE_PORT"] in lines
    assert ["host", '"127.0.0.1"', "default"] in lines
    report = json.loads(paceline(*arguments, "--json", HF_SECRET="s3cret").stdout)
    assert report["engine"]["hub_token"] == {"value": "env:HF_SECRET", "origin": "paceline.yaml, line 3"}
    assert report["server"]["port"] == {"value": 8000, "origin": "default"}
    assert "s3cret" not in table.stdout


def test_the_guides_flags_are_understood(paceline: RunCommand, tiny_pair: TinyPair) -> None:
    theirs = ("--model-path", tiny_pair.target, "--draft-model-path", tiny_pair.draft, "--max-context-length", 99)
    ours = (tiny_pair.target, "--draft-model", tiny_pair.draft, "--context-window-size", 99)
    shown = [paceline("config", *options, "--num-speculative-tokens", 3).stdout for options in (theirs, ours)]
    assert shown[0] == shown[1] != ""
    chatted = paceline("chat", *theirs, "--speculative-tokens", 3, "--max-tokens", 4, stdin="hello\n")
    assert chatted.returncode == 0, chatted.stderr
    twice = paceline("chat", tiny_pair.target, *theirs)
    assert (twice.returncode, twice.stderr.count("\n")) == (2, 1)
    assert "the model is named twice" in twice.stderr


def test_bench_prints_a_table_or_json(paceline: RunCommand, tiny_pair: TinyPair, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    task = {"id": "a-1", "task": "a", "max_tokens": 6, "messages": [{"role": "user", "content": "hello"}]}
    tasks.write_text(f"{json.dumps(task)}\n")
    arguments = ("bench", "tasks", tiny_pair.target, "--draft-model", tiny_pair.draft, "--tasks", tasks)
    table = paceline(*arguments)
    assert table.returncode == 0, table.stderr
    assert table.stdout.startswith(
        "| task | plain | suffix 3 | suffix 7 | draft-model 3 | draft-model 7 | auto | auto, w"
    )
    own = paceline(
        "bench", "tasks", tiny_pair.target, "--shared-layers", 1, "--drafters", "shared-layers", *arguments[-2:]
    )
    assert own.returncode == 0, own.stderr
    assert own.stdout.startswith("| task | plain | shared-layers 3 | shared-layers 7 | auto |")
    more = ("--max-tokens", 4, "--kinds", "a", "--temperature", 0.8)
    report = json.loads(paceline(*arguments, "--json", *more).stdout)
    assert [measurement["num_tokens"] for measurement in report["measurements"]] == [4] * 7
    assert report["provenance"]["target"]["name"] == tiny_pair.target.stem
    assert paceline(*arguments, "--kinds", "b").returncode == 2


def exit_code(process: subprocess.Popen[str]) -> int:
    """Returns the exit code of a process that should end soon; if it does not, fails and shows where it hangs."""
    try:
        return process.wait(30)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        _, said = process.communicate()
        pytest.fail(f"the process did not end:\n{said}")


@pytest.fixture
def _children_see_interrupts() -> Iterator[None]:
    """Lets child processes receive interrupts. If a shell runs these tests as a background job, they ignore interrupts,
    and their children would inherit that."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("_children_see_interrupts")
def test_ctrl_c_ends_an_answer_quietly(tiny_pair: TinyPair, tmp_path: Path) -> None:
    arguments = [str(COMMAND), "generate", str(tiny_pair.target), "x", "--max-tokens", "3000", "--speculation", "fixed"]
    environment = os.environ | {"PACELINE_CACHE_DIR": str(tmp_path), "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(  # the answer does not fit into the pipe, so the process cannot end before the signal
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, pipesize=4096
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        assert exit_code(process) == 130
        assert process.stderr.read().strip() == ""


def test_serve_answers_and_ends_with_sigterm(tiny_pair: TinyPair, tmp_path: Path) -> None:
    arguments = [str(COMMAND), "serve", str(tiny_pair.target), "--port", "0", "--threads", "1", "--log-format", "json"]
    arguments += ["--kv-cache-type", "q8"]
    environment = os.environ | {"PACELINE_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        events = (json.loads(line) for line in process.stderr if line.startswith("{"))
        ready = next(event for event in events if event["event"] == "ready")
        assert ready["url"].startswith("http://127.0.0.1:")
        answer = httpx.get(f"{ready['url']}/models", timeout=30)
        assert answer.json()["data"][0]["id"] == tiny_pair.target.stem
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
