"""Measures any OpenAI-compatible server on the benchmark tasks, so that all engines are measured by the same code.

    compare_openai.py URL [--kinds code,edit] [--limit N] [--concurrency N] [--temperature T] [--json OUT]

URL is the part before `/v1`. The server's `usage` gives the number of tokens. The decode rate leaves out the time of
the first token.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from paceline.operations.workload import Task, read_tasks

TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Answer:
    """One task as the client measured it."""

    task_id: str
    task: str
    text: str
    num_tokens: int
    num_prompt_tokens: int
    time_to_first_token_s: float
    total_s: float

    @property
    def decode_tokens_per_s(self) -> float | None:
        """The decode rate; None if there is no second token."""
        duration_s = self.total_s - self.time_to_first_token_s
        return (self.num_tokens - 1) / duration_s if self.num_tokens > 1 and duration_s > 0 else None


def stream_chunks(client: httpx.Client, path: str, body: dict[str, object]) -> Iterator[dict[str, Any]]:
    """Yields the parsed server-sent events of one completion. Raises httpx.HTTPStatusError."""
    with client.stream("POST", path, json=body) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line.removeprefix("data: "))


def ask(client: httpx.Client, task: Task, model: str, temperature: float) -> Answer:
    """Streams the answer to one task and returns it with its times."""
    body: dict[str, object] = {
        "model": model,
        "messages": task.messages,
        "max_tokens": task.max_tokens,
        "temperature": temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    start_s = time.perf_counter()
    pieces: list[tuple[float, str]] = []
    usage: dict[str, int] = {}
    for chunk in stream_chunks(client, "/v1/chat/completions", body):
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", []):
            if content := choice["delta"].get("content"):
                pieces.append((time.perf_counter() - start_s, content))
    return Answer(
        task_id=task.id,
        task=task.task,
        text="".join(content for _, content in pieces),
        num_tokens=usage["completion_tokens"],
        num_prompt_tokens=usage["prompt_tokens"],
        time_to_first_token_s=pieces[0][0],
        total_s=pieces[-1][0],
    )


def print_table(answers: list[Answer], wall_s: float) -> None:
    """Prints a row for each kind of task, and the total."""
    print(f"{'task':<10} {'tasks':>5} {'tokens':>7} {'tokens/s':>9} {'first token s':>14}")
    for kind in dict.fromkeys(answer.task for answer in answers):
        rows = [answer for answer in answers if answer.task == kind]
        rates = [answer.decode_tokens_per_s for answer in rows if answer.decode_tokens_per_s is not None]
        rate = statistics.harmonic_mean(rates) if rates else float("nan")
        first_s = statistics.median(answer.time_to_first_token_s for answer in rows)
        print(f"{kind:<10} {len(rows):>5} {sum(row.num_tokens for row in rows):>7} {rate:>9.1f} {first_s:>14.2f}")
    total = sum(answer.num_tokens for answer in answers)
    print(f"{total} tokens in {wall_s:.1f} s: {total / wall_s:.1f} tokens/s in all")


def main() -> None:
    """Asks all tasks and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--kinds", type=lambda text: text.split(","), help="kinds of tasks, joined by commas")
    parser.add_argument("--limit", type=int, help="tasks of each kind")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--model", default="default")
    parser.add_argument("--json", type=Path, help="file for all answers")
    options = parser.parse_args()
    tasks = [
        task for task in read_tasks(limit_per_kind=options.limit) if options.kinds is None or task.task in options.kinds
    ]
    start_s = time.perf_counter()
    with (
        httpx.Client(base_url=options.url, timeout=TIMEOUT_S) as client,
        ThreadPoolExecutor(options.concurrency) as pool,
    ):
        answers = list(pool.map(lambda task: ask(client, task, options.model, options.temperature), tasks))
    wall_s = time.perf_counter() - start_s
    print_table(answers, wall_s)
    if options.json:
        report = {"url": options.url, "wall_s": wall_s, "answers": [dataclasses.asdict(answer) for answer in answers]}
        options.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
