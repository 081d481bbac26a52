"""The engines that `peers.py` compares. Each has one call, which takes token ids and returns the times of the tokens.

An engine that is not on this machine is not left out: it says why it is missing.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
from compare_openai import TIMEOUT_S, stream_chunks
from servers import STOP_TIMEOUT_S, llama_cpp_binary_server, llama_cpp_server, paceline_server

from paceline.checkpoint import ResolvedModel

SLOT_CONTEXT_SIZE = 2048
PACELINE, LLAMA_CPP_WHEEL, LLAMA_CPP_BUILD, OPENVINO = (
    "Paceline",
    "llama.cpp, wheel",
    "llama.cpp, native build",
    "OpenVINO GenAI",
)


@dataclass(frozen=True)
class Stream:
    """One answer: how many tokens, and when its pieces and its end came, in seconds since the prompts were sent."""

    num_tokens: int
    piece_times_s: list[float]
    end_s: float

    @property
    def first_s(self) -> float:
        """When the first piece came; the end if none came. A server may hold back half a character."""
        return self.piece_times_s[0] if self.piece_times_s else self.end_s


# Takes the prompts and the number of tokens; answers all prompts at once, greedily, with exactly so many tokens.
Complete = Callable[[Sequence[list[int]], int], list[Stream]]


@dataclass(frozen=True)
class PeerEngine:
    """One engine in one mode. `start` takes the number of streams. `missing` says why the engine cannot start."""

    name: str
    start: Callable[[int], AbstractContextManager[Complete]] | None = None
    missing: str | None = None
    mode: str | None = None
    details: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name and the mode. Plain decoding has no mode."""
        return f"{self.name}, {self.mode}" if self.mode else self.name


@dataclass(frozen=True)
class Models:
    """The files that all engines run. `model` is the model's name for Paceline."""

    model: str
    target: ResolvedModel
    draft: ResolvedModel | None
    num_threads: int


def complete_over_http(url: str, prompts: Sequence[list[int]], max_tokens: int) -> list[Stream]:
    """Sends all prompts at once to a server's POST /v1/completions, and returns the answers."""
    with (
        httpx.Client(base_url=url, timeout=TIMEOUT_S) as client,
        ThreadPoolExecutor(len(prompts)) as pool,
    ):
        start_s = time.perf_counter()
        return list(pool.map(lambda prompt: _complete_one(client, prompt, max_tokens, start_s), prompts))


def _complete_one(client: httpx.Client, prompt: list[int], max_tokens: int, start_s: float) -> Stream:
    body: dict[str, object] = {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    times_s: list[float] = []
    end_s = 0.0
    usage: dict[str, int] = {}
    for chunk in stream_chunks(client, "/v1/completions", body):
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", []):
            end_s = time.perf_counter() - start_s
            if choice.get("text"):
                times_s.append(end_s)
    return Stream(usage["completion_tokens"], times_s, end_s)


def paceline_engine(models: Models, *, drafts: bool) -> PeerEngine:
    """Returns Paceline's server, with all drafters or none."""

    @contextmanager
    def start(num_streams: int) -> Iterator[Complete]:
        options = ["--threads", str(models.num_threads), "--max-batch-size", str(num_streams)]
        with paceline_server(models.model, *options, *([] if drafts else ["--drafters", "none"])) as server:
            yield lambda prompts, max_tokens: complete_over_http(server.url, prompts, max_tokens)

    return PeerEngine(
        PACELINE, start, mode="all drafters" if drafts else None, details={"version": version("paceline")}
    )


def llama_cpp_wheel(models: Models) -> PeerEngine:
    """Returns llama.cpp from the package `xllamacpp`."""
    if importlib.util.find_spec("xllamacpp") is None:
        return PeerEngine(LLAMA_CPP_WHEEL, missing="not installed: pip install xllamacpp")

    @contextmanager
    def start(num_streams: int) -> Iterator[Complete]:
        with llama_cpp_server(
            models.target.path,
            num_threads=models.num_threads,
            context_size=SLOT_CONTEXT_SIZE,
            num_slots=num_streams,
        ) as server:
            yield lambda prompts, max_tokens: complete_over_http(server.url, prompts, max_tokens)

    return PeerEngine(LLAMA_CPP_WHEEL, start, details={"version": version("xllamacpp")})


def llama_cpp_build(models: Models, binary: Path | None, mode: str | None = None, *options: str) -> PeerEngine:
    """Returns llama.cpp, built for this machine. `options` select a mode of speculation."""
    if binary is None or not binary.is_file():
        reason = "not installed: build llama.cpp and name its llama-server with --llama-server"
        return PeerEngine(LLAMA_CPP_BUILD, missing=reason, mode=mode)

    @contextmanager
    def start(num_streams: int) -> Iterator[Complete]:
        with llama_cpp_binary_server(
            binary,
            models.target.path,
            *options,
            num_threads=models.num_threads,
            context_size=SLOT_CONTEXT_SIZE,
            num_slots=num_streams,
        ) as server:
            yield lambda prompts, max_tokens: complete_over_http(server.url, prompts, max_tokens)

    return PeerEngine(LLAMA_CPP_BUILD, start, mode=mode, details={"options": " ".join(options)})


def openvino_engine(models: Models, python: Path | None, mode: str | None = None) -> PeerEngine:
    """Returns OpenVINO GenAI, which runs in a process of its own without a server."""
    if python is None or subprocess.run([python, "-c", "import openvino_genai"], check=False).returncode != 0:
        reason = "not installed: pip install openvino-genai, or name an interpreter with --openvino-python"
        return PeerEngine(OPENVINO, missing=reason, mode=mode)
    worker = str(Path(__file__).with_name("openvino_worker.py"))
    command = [str(python), worker, str(models.target.path), str(models.num_threads)]
    details: dict[str, str] = {}

    @contextmanager
    def start(num_streams: int) -> Iterator[Complete]:
        with subprocess.Popen(
            [*command, str(num_streams), mode or "plain"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                details.update(_read_json(process))
                yield lambda prompts, max_tokens: _run_job(process, prompts, max_tokens)
            finally:
                process.terminate()
                process.wait(STOP_TIMEOUT_S)

    return PeerEngine(OPENVINO, start, mode=mode, details=details)


def _run_job(process: subprocess.Popen[str], prompts: Sequence[list[int]], max_tokens: int) -> list[Stream]:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"prompts": list(prompts), "max_tokens": max_tokens}) + "\n")
    process.stdin.flush()
    return [Stream(**stream) for stream in _read_json(process)["streams"]]


def _read_json(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Returns the next line that is JSON; libraries may print others. Raises RuntimeError if the process ends."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise RuntimeError("the OpenVINO process ended; its error is above")


def plain_engines(models: Models, llama_server: Path | None, openvino_python: Path | None) -> list[PeerEngine]:
    """Returns all engines without speculation."""
    return [
        paceline_engine(models, drafts=False),
        llama_cpp_wheel(models),
        llama_cpp_build(models, llama_server),
        openvino_engine(models, openvino_python),
    ]


def speculating_engines(models: Models, llama_server: Path | None, openvino_python: Path | None) -> list[PeerEngine]:
    """Returns each engine's modes of speculation for these files. OpenVINO cannot read a draft model of type Q5_0."""
    engines = [paceline_engine(models, drafts=True)]
    if models.draft is not None:
        draft = ["-md", str(models.draft.path), "--spec-type", "draft-simple", "--spec-draft-n-max", "3"]
        engines.append(llama_cpp_build(models, llama_server, "draft model", *draft))
    engines.append(llama_cpp_build(models, llama_server, "n-gram", "--spec-type", "ngram-mod"))
    engines.append(openvino_engine(models, openvino_python, "prompt-lookup"))
    return engines


def find_llama_server(path: Path | None) -> Path | None:
    """Returns the named binary, or the one on the search path."""
    found = shutil.which("llama-server")
    return path or (Path(found) if found else None)


def find_openvino_python(path: Path | None) -> Path | None:
    """Returns the named interpreter, or this one if it has the package."""
    return path or (Path(sys.executable) if importlib.util.find_spec("openvino_genai") else None)
