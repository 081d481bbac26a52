"""Paceline beside other engines: the same file, prompts and threads, one engine at a time, in turn in each round.

    peers.py [--model NAME] [--llama-server PATH] [--openvino-python PATH] [--speculative] [--rounds 3] [--json OUT]

Every engine gets the same token ids and gives the same number of tokens, greedily. Measured are plain decoding on the
benchmark tasks, a prompt of 512 tokens, and 8 streams at once while all of them decode; with `--speculative` also each
engine's own ways to speculate, on the tasks. What is not installed is said so in its row.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
from peer_engines import (
    LLAMA_CPP_BUILD,
    LLAMA_CPP_WHEEL,
    PACELINE,
    Complete,
    Models,
    PeerEngine,
    Stream,
    find_llama_server,
    find_openvino_python,
    plain_engines,
    speculating_engines,
)
from prompts import text_passages
from report import markdown, number, write_report

from paceline.backends.native.model import instruction_sets
from paceline.checkpoint import DEFAULT_MODEL_NAME, GgufFile
from paceline.config import EngineConfig
from paceline.drafters.selection import resolve_pair
from paceline.operations.provenance import read_model_provenance, read_provenance
from paceline.operations.workload import read_tasks
from paceline.tokenizer import Tokenizer

DECODE, PROMPT, STREAMS = "decode", "prompt", "streams"
FIGURES = (DECODE, PROMPT, STREAMS)
LLAMA_CPP = (LLAMA_CPP_WHEEL, LLAMA_CPP_BUILD)
STREAM_PROMPT_LENGTH = 32
NUM_PROMPT_REPEATS = 2

Rates = dict[str, list[float]]  # by figure, one a round, tokens per second


@dataclass(frozen=True)
class Prompts:
    """Token ids for every measurement; no two begin alike, so that no cache of prefixes helps."""

    warm_up: list[int]
    tasks: list[list[int]]
    long: list[list[int]]
    streams: list[list[int]]


def decode_rate(stream: Stream) -> float:
    """Tokens per second from the first token on."""
    return (stream.num_tokens - 1) / (stream.end_s - stream.first_s)


def together_rate(streams: Sequence[Stream]) -> float:
    """Tokens per second of all streams while all of them decode: from the last one's start to the first one's end.

    A piece is taken for as many tokens as the stream's pieces have on average.
    """
    begin_s = max(stream.first_s for stream in streams)
    end_s = min(stream.end_s for stream in streams)
    if end_s <= begin_s:
        raise ValueError("the streams never decoded at the same time; raise --max-tokens")
    num_tokens = sum(
        sum(begin_s < time_s <= end_s for time_s in stream.piece_times_s)
        * stream.num_tokens
        / len(stream.piece_times_s)
        for stream in streams
    )
    return num_tokens / (end_s - begin_s)


def measure_tasks(complete: Complete, prompts: Prompts, max_tokens: int) -> float:
    """Plain decoding or speculation, one task after another."""
    complete([prompts.warm_up], 2)
    return statistics.harmonic_mean([decode_rate(complete([task], max_tokens)[0]) for task in prompts.tasks])


def measure_prompt(complete: Complete, prompts: Prompts) -> float:
    """Tokens of the prompt per second until the first token."""
    times_s = [complete([prompt], 1)[0].first_s for prompt in prompts.long]
    return len(prompts.long[0]) / statistics.median(times_s)


def measure_engine(engine: PeerEngine, prompts: Prompts, max_tokens: int) -> dict[str, float]:
    """One round of one engine; speculation is measured on the tasks only."""
    assert engine.start is not None
    with engine.start(1) as complete:
        rates = {DECODE: measure_tasks(complete, prompts, max_tokens)}
        if engine.mode is not None:
            return rates
        rates[PROMPT] = measure_prompt(complete, prompts)
    with engine.start(len(prompts.streams)) as complete:
        complete([prompts.warm_up], 2)
        rates[STREAMS] = together_rate(complete(prompts.streams, max_tokens))
    return rates


def measure(
    engines: Sequence[PeerEngine], prompts: Prompts, max_tokens: int, num_rounds: int
) -> tuple[dict[str, Rates], dict[str, str]]:
    """Rates of each engine that is there, and why others gave none, by title; a round begins with another engine."""
    missing = {engine.title: engine.missing for engine in engines if engine.missing is not None}
    present = [engine for engine in engines if engine.missing is None]
    found: dict[str, Rates] = {engine.title: {} for engine in present}
    for round_index in range(num_rounds):
        first = round_index % len(present)
        for engine in [*present[first:], *present[:first]]:
            try:
                rates = measure_engine(engine, prompts, max_tokens)
            except (RuntimeError, httpx.HTTPError) as error:
                print(f"{engine.title} failed: {error}", file=sys.stderr)
                missing[engine.title] = "failed; its error is in the log"
                continue
            for figure, rate in rates.items():
                found[engine.title].setdefault(figure, []).append(rate)
            text = ", ".join(f"{figure} {rate:.1f}" for figure, rate in rates.items())
            print(f"round {round_index + 1}, {engine.title}: {text} tokens/s", file=sys.stderr, flush=True)
    return {title: rates for title, rates in found.items() if title not in missing}, missing


def ratio(rates: Mapping[str, Rates], title: str, rivals: Sequence[str], figure: str) -> float | None:
    """The median over the rounds of an engine's rate over the best rival's in the same round; None without both."""
    own = rates.get(title, {}).get(figure)
    others = [rates[rival][figure] for rival in rivals if figure in rates.get(rival, {})]
    if not own or not others:
        return None
    ratios = (rate / max(best) for rate, best in zip(own, zip(*others, strict=True), strict=True))
    return float(statistics.median(ratios))


def ratio_rows(rates: Mapping[str, Rates]) -> dict[str, dict[str, float | None]]:
    """What Paceline reaches of the best llama.cpp: plain against plain, drafting against its best mode."""
    plain = {figure: ratio(rates, PACELINE, LLAMA_CPP, figure) for figure in FIGURES}
    rows = {"Paceline / best llama.cpp": plain}
    drafting = next((title for title in rates if title.startswith(f"{PACELINE}, ")), None)
    if drafting is not None:
        rivals = [title for title in rates if title.startswith(LLAMA_CPP)]
        best = ratio(rates, drafting, rivals, DECODE)
        rows["Paceline with drafts / best llama.cpp of any mode"] = {DECODE: best, PROMPT: None, STREAMS: None}
    return rows


def render(titles: Sequence[str], rates: Mapping[str, Rates], missing: Mapping[str, str], num_streams: int) -> str:
    """A row for each engine and mode, then the ratios."""
    headers = ["tokens per second", "decoding", "prompt", f"{num_streams} streams"]
    rows = []
    for title in titles:
        if title in missing:
            rows.append([title, missing[title], "-", "-"])
            continue
        medians = [statistics.median(found) if (found := rates[title].get(figure)) else None for figure in FIGURES]
        rows.append([title, *(number(median, ".1f") for median in medians)])
    for title, ratios in ratio_rows(rates).items():
        cells = [number(ratios[figure], ".2f") for figure in FIGURES]
        rows.append([f"**{title}**", *(cell if cell == "-" else f"{cell}x" for cell in cells)])
    return markdown(headers, rows)


def make_prompts(path: Path, *, num_tasks: int, num_streams: int, prompt_length: int) -> Prompts:
    """The first task of each kind as chats, and passages of the tasks' text."""
    with GgufFile.open(path) as gguf:
        tokenizer = Tokenizer.from_gguf(gguf, None)
    tasks = read_tasks()
    chats = [tokenizer.encode_chat(task.messages) for task in read_tasks(limit_per_kind=1)[:num_tasks]]
    passages = text_passages(tokenizer, tasks, prompt_length, NUM_PROMPT_REPEATS + 1)
    streams = text_passages(tokenizer, tasks, STREAM_PROMPT_LENGTH, num_streams)
    return Prompts(passages[0][:STREAM_PROMPT_LENGTH], chats, passages[1:], streams)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL_NAME)
    parser.add_argument("--llama-server", type=Path, help="of a native build; default: the one on the search path")
    parser.add_argument("--openvino-python", type=Path, help="interpreter with openvino-genai; default: this one")
    parser.add_argument("--engines", type=lambda text: text.split("+"), help="rows joined by +; default: all")
    parser.add_argument("--speculative", action="store_true")
    parser.add_argument("--num-tasks", type=int, default=5)
    parser.add_argument("--num-streams", type=int, default=8)
    parser.add_argument("--prompt-length", type=int, default=512)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures round by round, prints the table and keeps all rates."""
    options = parse_options(arguments)
    resolved = resolve_pair(EngineConfig(model=options.model))
    models = Models(options.model, resolved.target, resolved.draft, options.threads)
    places = find_llama_server(options.llama_server), find_openvino_python(options.openvino_python)
    engines = plain_engines(models, *places)
    if options.speculative:
        engines += speculating_engines(models, *places)
    engines = [engine for engine in engines if options.engines is None or engine.title in options.engines]
    prompts = make_prompts(
        resolved.target.path,
        num_tasks=options.num_tasks,
        num_streams=options.num_streams,
        prompt_length=options.prompt_length,
    )
    rates, missing = measure(engines, prompts, options.max_tokens, options.rounds)
    print(render([engine.title for engine in engines], rates, missing, options.num_streams))
    if options.json:
        provenance = read_provenance(
            os.environ.get("PACELINE_ISA") or instruction_sets()[-1],
            options.threads,
            read_model_provenance(resolved.target.name, resolved.target.path),
            read_model_provenance(resolved.draft.name, resolved.draft.path) if resolved.draft else None,
        )
        content = {
            "settings": {key: str(value) for key, value in vars(options).items() if key != "json"},
            "engines": {engine.title: engine.details for engine in engines},
            "missing": missing,
            "tokens_per_s": rates,
            "ratios": ratio_rows(rates),
        }
        write_report(options.json, provenance, content)


if __name__ == "__main__":
    main()
