"""`generate` reads the prompt and prints the answer without changing a character of them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from paceline import Engine, EngineConfig, SamplingParams
from paceline.cli.progress import PullProgress
from tests.cli.conftest import COMMAND, RunOnBytes
from tests.support.tiny_gguf import TinyPair

ANY_BYTE = SamplingParams(max_tokens=1500, temperature=50.0, seed=13)  # so hot that it gives control characters too
ANY_BYTE_OPTIONS = ("--max-tokens", 1500, "--temperature", 50, "--seed", 13)


def text_of(tiny_pair: TinyPair, prompt: str, sampling: SamplingParams) -> str:
    engine = Engine(EngineConfig(model=str(tiny_pair.target), drafters=()))
    return engine.generate([prompt], sampling)[0].text


def test_control_characters_are_printed_as_they_are(paceline_on_bytes: RunOnBytes, tiny_pair: TinyPair) -> None:
    text = text_of(tiny_pair, "x", ANY_BYTE)
    assert {"\t", "\r", "\x0c", "\x0b", "\x08"} <= set(text)
    result = paceline_on_bytes("generate", tiny_pair.target, "x", "--raw", *ANY_BYTE_OPTIONS)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{text}\n".encode()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_a_terminal_lacks_are_escaped(
    encoding: str, paceline_on_bytes: RunOnBytes, tiny_pair: TinyPair
) -> None:
    sampling = SamplingParams(max_tokens=300, temperature=50.0, seed=13)
    text = text_of(tiny_pair, "x", sampling)
    assert not text.isascii()
    result = paceline_on_bytes(
        *("generate", tiny_pair.target, "x", "--raw", "--max-tokens", 300, "--temperature", 50, "--seed", 13),
        PYTHONIOENCODING=encoding,
        PYTHONUTF8="0",
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{text}\n".encode(encoding, "backslashreplace")


def test_colours_are_added_and_nothing_is_changed(paceline_on_bytes: RunOnBytes, tiny_pair: TinyPair) -> None:
    result = paceline_on_bytes(
        *("generate", tiny_pair.target, "x", "--raw", "--show-drafts", *ANY_BYTE_OPTIONS),
        *("--draft-model", tiny_pair.draft, "--speculation", "fixed"),
        FORCE_COLOR="1",
        TERM="xterm",
    )
    assert result.returncode == 0, result.stderr
    coloured = re.findall(rb"\x1b\[32m(.*?)\x1b\[0m", result.stdout, re.DOTALL)
    assert {b"\t", b"\r", b"\x0c"} <= {bytes([byte]) for byte in b"".join(coloured)}
    plain = result.stdout.replace(b"\x1b[32m", b"").replace(b"\x1b[0m", b"")
    assert plain == f"{text_of(tiny_pair, 'x', ANY_BYTE)}\n".encode()


def test_standard_input_keeps_its_line_ends(paceline_on_bytes: RunOnBytes, tiny_pair: TinyPair) -> None:
    greedy = SamplingParams(max_tokens=12, temperature=0.0)
    texts = [text_of(tiny_pair, prompt, greedy) for prompt in ("one\r\ntwo\r\n", "one\ntwo\n")]
    assert texts[0] != texts[1]
    result = paceline_on_bytes("generate", tiny_pair.target, "-", "--raw", "--max-tokens", 12, stdin=b"one\r\ntwo\r\n")
    assert result.stdout == f"{texts[0]}\n".encode()


def test_a_reader_that_leaves_ends_the_answer_quietly(tiny_pair: TinyPair, tmp_path: Path) -> None:
    arguments = [str(COMMAND), "generate", str(tiny_pair.target), "x", "--max-tokens", "2000"]
    environment = os.environ | {"PACELINE_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, pipesize=4096
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr.read() == b""


@pytest.mark.parametrize("message", ["pulling owner/model:smile:.gguf", "pulling model[bold].gguf"])
def test_what_a_pull_says_is_not_taken_for_markup(
    message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    PullProgress().note(message)
    assert capsys.readouterr().err == f"{message}\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    with PullProgress() as progress:
        progress.begin(message, 10)
    assert message in capsys.readouterr().err
