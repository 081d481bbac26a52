"""Compares Paceline with other engines, with the same file, prompts and threads, one engine after another.

    peers.py [--model NAME] [--llama-server PATH] [--openvino-python PATH] [--speculative] [--rounds 3] [--json OUT]

Every engine gets the same token ids and gives the same number of tokens, greedily. The script measures plain decoding
on the benchmark tasks, a prompt of 512 tokens, and 8 streams while all of them decode. With `--speculative` it also
measures each engine's modes of speculation on the tasks. The row of an engine that is not installed says so.
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

Rates = dict[str, list[float]]  # tokens per second by figure, one for each round


@dataclass(frozen=True)
class Prompts:
    """Token ids for every measurement. No two prompts begin alike, so no prefix cache helps."""

    warm_up: list[int]
    tasks: list[list[int]]
    long: list[list[int]]
    streams: list[list[int]]


def decode_rate(stream: Stream) -> float:
    """Returns the tokens per second after the first token."""
    return (stream.num_tokens - 1) / (stream.end_s - stream.first_s)


def together_rate(streams: Sequence[Stream]) -> float:
    """Returns the tokens per second of all streams, from the last one's first token to the first one's end.

    Each piece counts as the stream's average number of tokens in a piece.
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
    """Returns the mean decode rate of the tasks, which run one after another."""
    complete([prompts.warm_up], 2)
    return statistics.harmonic_mean([decode_rate(complete([task], max_tokens)[0]) for task in prompts.tasks])


def measure_prompt(complete: Complete, prompts: Prompts) -> float:
    """Returns the tokens of the prompt divided by the seconds until the first token."""
    times_s = [complete([prompt], 1)[0].first_s for prompt in prompts.long]
    return len(prompts.long[0]) / statistics.median(times_s)


def measure_engine(engine: PeerEngine, prompts: Prompts, max_tokens: int) -> dict[str, float]:
    """Measures one round of one engine. A mode of speculation is measured only on the tasks."""
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
    """Returns the rates by title, and why engines are missing. Each round begins with another engine."""
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
    """Returns the median over the rounds of the rate divided by the best rival's; None if one is missing."""
    own = rates.get(title, {}).get(figure)
    others = [rates[rival][figure] for rival in rivals if figure in rates.get(rival, {})]
    if not own or not others:
        return None
    ratios = (rate / max(best) for rate, best in zip(own, zip(*others, strict=True), strict=True))
    return float(statistics.median(ratios))


def ratio_rows(rates: Mapping[str, Rates]) -> dict[str, dict[str, float | None]]:
    """Returns Paceline's rate relative to the best llama.cpp: plain to plain, and drafting to its best mode."""
    plain = {figure: ratio(rates, PACELINE, LLAMA_CPP, figure) for figure in FIGURES}
    rows = {"Paceline / best llama.cpp": plain}
    drafting = next((title for title in rates if title.startswith(f"{PACELINE}, ")), None)
    if drafting is not None:
        rivals = [title for title in rates if title.startswith(LLAMA_CPP)]
        best = ratio(rates, drafting, rivals, DECODE)
        rows["Paceline with drafts / best llama.cpp of any mode"] = {DECODE: best, PROMPT: None, STREAMS: None}
    return rows


def render(titles: Sequence[str], rates: Mapping[str, Rates], missing: Mapping[str, str], num_streams: int) -> str:
    """Returns a table with a row for each engine and mode, then the ratios."""
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
    """Returns the first task of each kind as a chat, and passages of the tasks' text."""
    with GgufFile.open(path) as gguf:
        tokenizer = Tokenizer.from_gguf(gguf, None)
    tasks = read_tasks()
    chats = [tokenizer.encode_chat(task.messages) for task in read_tasks(limit_per_kind=1)[:num_tasks]]
    passages = text_passages(tokenizer, tasks, prompt_length, NUM_PROMPT_REPEATS + 1)
    streams = text_passages(tokenizer, tasks, STREAM_PROMPT_LENGTH, num_streams)
    return Prompts(passages[0][:STREAM_PROMPT_LENGTH], chats, passages[1:], streams)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line."""
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
    """Measures round by round, prints the table and writes all rates to the file."""
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
