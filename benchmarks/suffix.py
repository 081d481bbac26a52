"""Measures time and memory of the suffix drafter, for each token and proposal, on friendly and hostile texts.

    suffix.py [--tokens 100000] [--window 8] [--rounds 5] [--json OUT]

No model is loaded. `code` is this checkout's Python source, split into words and signs. The other texts are
artificial. A proposal is one call for one sequence, with the other half of the text as the store. The numbers are
medians over the rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from report import markdown, write_report

from paceline.backends.native.model import instruction_sets
from paceline.drafters.suffix.drafter import MAX_MATCH
from paceline.drafters.suffix.native_tree import SuffixTree, propose_from_suffixes
from paceline.operations.provenance import read_provenance

SOURCE = Path(__file__).parents[1] / "src"
NUM_PROPOSALS = 200
MIN_SURVIVAL = 0.1


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Medians for one text. `num_proposed` is the average number of nodes in a chain."""

    text: str
    num_tokens: int
    append_ns: float
    evict_ns: float
    chain_ns: float
    tree_ns: float
    num_proposed: float
    bytes_per_token: float


def source_text(num_tokens: int) -> list[int]:
    """Returns the checkout's source as token ids. Repeats it if it is too short."""
    words = [
        word for path in sorted(SOURCE.rglob("*.py")) for word in re.findall(r"\w+|\s+|.", path.read_text("utf-8"))
    ]
    ids = {word: index for index, word in enumerate(dict.fromkeys(words))}
    return [ids[words[i % len(words)]] for i in range(num_tokens)]


TEXTS: tuple[tuple[str, Callable[[int], list[int]]], ...] = (
    ("code", source_text),
    ("random tokens", lambda n: random.Random(1).choices(range(150_000), k=n)),
    ("random bits", lambda n: random.Random(2).choices(range(2), k=n)),
    ("one token", lambda n: [7] * n),
    ("period of 977", lambda n: [i % 977 for i in range(n)]),
)


def nanoseconds(call: Callable[[], object], count: int) -> float:
    """Returns the nanoseconds of a call, divided by `count`."""
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / count


def measure_round(name: str, token_ids: list[int], window: int) -> Cost:
    """Builds two trees and measures all of their calls once."""
    half = len(token_ids) // 2
    own, store = SuffixTree(MAX_MATCH), SuffixTree(MAX_MATCH)
    append_ns = nanoseconds(lambda: store.append(token_ids[:half]), half)
    own.append(token_ids[half:-NUM_PROPOSALS])
    calls_ns: dict[bool, float] = {False: 0.0, True: 0.0}
    num_proposed = 0
    for token_id in token_ids[-NUM_PROPOSALS:]:
        for has_branches in calls_ns:
            start = time.perf_counter_ns()
            draft = propose_from_suffixes(own, store, window=window, stop_below=MIN_SURVIVAL, has_branches=has_branches)
            calls_ns[has_branches] += (time.perf_counter_ns() - start) / NUM_PROPOSALS
            num_proposed += 0 if has_branches else len(draft[0])
        own.append([token_id])
    size_bytes = store.size_bytes
    return Cost(
        text=name,
        num_tokens=half,
        append_ns=append_ns,
        evict_ns=nanoseconds(store.evict_text, half),
        chain_ns=calls_ns[False],
        tree_ns=calls_ns[True],
        num_proposed=num_proposed / NUM_PROPOSALS,
        bytes_per_token=size_bytes / half,
    )


def median_of(rounds: list[Cost]) -> Cost:
    """Returns the medians of the times. The other numbers are the same in each round."""
    first = rounds[0]
    fields = [field.name for field in dataclasses.fields(Cost) if field.name.endswith("_ns")]
    medians = {name: statistics.median(getattr(cost, name) for cost in rounds) for name in fields}
    return dataclasses.replace(first, **medians)


def render(costs: list[Cost]) -> str:
    """Returns the table to print."""
    headers = ["text", "ns a token read", "ns evicted", "µs a chain", "µs a tree", "nodes a chain", "bytes a token"]
    rows = [
        [
            cost.text,
            f"{cost.append_ns:.0f}",
            f"{cost.evict_ns:.0f}",
            f"{cost.chain_ns / 1000:.1f}",
            f"{cost.tree_ns / 1000:.1f}",
            f"{cost.num_proposed:.1f}",
            f"{cost.bytes_per_token:.0f}",
        ]
        for cost in costs
    ]
    return markdown(headers, rows)


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=100_000, help="length of each text, half of it the store's")
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    texts = [(name, make(options.tokens)) for name, make in TEXTS]
    rounds = [[measure_round(name, text, options.window) for name, text in texts] for _ in range(options.rounds)]
    costs = [median_of(list(same_text)) for same_text in zip(*rounds, strict=True)]
    print(render(costs))
    if options.json:
        settings = {"window": options.window, "rounds": options.rounds}
        content = {"settings": settings, "costs": [dataclasses.asdict(cost) for cost in costs]}
        write_report(options.json, read_provenance(instruction_sets()[-1], 1), content)


if __name__ == "__main__":
    main()
