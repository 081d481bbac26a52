"""Measures constrained answers: what the masks cost, and what drafting brings.

    constrained_speed.py [--model NAME] [--rounds 3] [--streams 1] [--json FILE]

For each schema of workloads/schemas.jsonl the same engine settings answer freely without drafts, in the form without
drafts, and in the form in automatic mode; the free answer has as many tokens as the other two. Every answer has a new
tenant, so nothing is known from earlier answers. It prints for each schema the tokens, the medians of the rates and of
their ratios within a round, the share of tokens that the form leaves no choice about, and the share of the masks in the
time of the steps. It exits 1 if a draft changed an answer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from report import markdown

from paceline.checkpoint import DEFAULT_MODEL_NAME
from paceline.config import EngineConfig
from paceline.constraints.grammars import CONSTRAINT_KINDS
from paceline.constraints.guidance import GuidanceKind
from paceline.core import Constraint, Request, SamplingParams
from paceline.core.errors import PacelineError
from paceline.engine import Engine
from paceline.engine.assembly import build_parts, load_pair
from paceline.engine.capacity import context_window_size, num_blocks_for
from paceline.operations.bench import auto_mode
from paceline.operations.timed_answers import TimedAnswer, answer_all

SCHEMAS = Path(__file__).parent / "workloads" / "schemas.jsonl"
MAX_TOKENS = 384
FREE, PLAIN, AUTO = "free", "constrained", "constrained, automatic"


@dataclass(frozen=True)
class Row:
    """One schema in one round. Rates are tokens per second after the first token."""

    name: str
    num_tokens: int
    free: float
    plain: float
    auto: float
    num_forced: int
    mask_share: float
    is_equal: bool


class Lab:
    """The engines of the three ways to answer, over models that are loaded once."""

    def __init__(self, model: str, num_streams: int) -> None:
        config = EngineConfig(model=model)
        self._pair = load_pair(config)
        self._config = config.model_copy(update={"max_batch_size": num_streams, "has_prefix_cache": False})
        self._automatic = auto_mode(config, self._pair)
        self._num_streams = num_streams
        self._constraints = dict.fromkeys(CONSTRAINT_KINDS, GuidanceKind())
        self._num_calls = 0

    def answer(self, entry: dict[str, Any], way: str, num_tokens: int | None) -> tuple[TimedAnswer, Engine]:
        """Answers in one way, with all streams at once, and returns the first stream's answer and the engine."""
        mode = self._automatic if way == AUTO else replace(self._automatic, drafters=(), window=0, controller=None)
        config = self._config.model_copy(update={"num_speculative_tokens": mode.window})
        num_blocks = self._num_streams * num_blocks_for(context_window_size(config, self._pair.target.model.config))
        parts = build_parts(self._pair, config, mode.drafters, num_blocks)
        parts = replace(parts, constraints=self._constraints)
        if mode.controller is not None:
            parts = replace(parts, controller=mode.controller)
        engine = Engine.from_parts(config, parts)
        self._num_calls += 1
        question = f"{entry['question']} Answer in JSON."
        prompt = engine.tokenizer.encode_chat([{"role": "user", "content": question}])
        requests = [
            Request(
                request_id=f"{stream}",
                prompt_token_ids=prompt,
                sampling=SamplingParams(
                    max_tokens=num_tokens or MAX_TOKENS, temperature=0.0, seed=stream, ignore_eos=way == FREE
                ),
                constraint=None if way == FREE else form_of(entry),
                tenant=f"{self._num_calls}-{stream}",
            )
            for stream in range(self._num_streams)
        ]
        engine.prepare(form_of(entry))
        return answer_all(engine, requests)[0], engine


def rate_of(answer: TimedAnswer) -> float:
    """Returns the tokens per second after the first token."""
    rate = answer.decode_tokens_per_s
    if rate is None:
        raise PacelineError("an answer has a single token; ask for longer ones")
    return rate


def num_forced(engine: Engine, entry: dict[str, Any], token_ids: list[int]) -> int:
    """Returns how many of an answer's tokens are those in which the tokenizer writes text without a choice."""
    state = GuidanceKind().begin(form_of(entry), engine.tokenizer)
    forced = 0
    for token_id in token_ids:
        forced += state.forced_token_ids((), 1) == [token_id]
        state.advance([token_id])
    return forced


def form_of(entry: dict[str, Any]) -> Constraint:
    """Returns the constraint of one schema."""
    return Constraint(kind="json_schema", source=json.dumps(entry["schema"]))


def measure(lab: Lab, entry: dict[str, Any], is_backwards: bool) -> Row:
    """Measures one schema once. The order of the ways changes from round to round."""
    plain, engine = lab.answer(entry, PLAIN, None)
    stats = engine.stats()
    ways = [FREE, AUTO] if is_backwards else [AUTO, FREE]
    found = {way: lab.answer(entry, way, len(plain.token_ids))[0] for way in ways}
    return Row(
        name=entry["name"],
        num_tokens=len(plain.token_ids),
        free=rate_of(found[FREE]),
        plain=rate_of(plain),
        auto=rate_of(found[AUTO]),
        num_forced=num_forced(engine, entry, plain.token_ids),
        mask_share=stats.mask_s / stats.masked_step_s,
        is_equal=found[AUTO].token_ids == plain.token_ids,
    )


def table(rows: list[Row]) -> str:
    """Returns a row for each schema, and one for all."""
    names = dict.fromkeys(row.name for row in rows)
    groups = [(name, [row for row in rows if row.name == name]) for name in names]
    headers = ["schema", "tokens", "tokens/s", "to free", "with drafts", "forced", "masks"]
    return markdown(headers, [[title, *cells(chosen)] for title, chosen in [*groups, ("**all**", rows)]])


def cells(rows: list[Row]) -> list[str]:
    """Returns the medians of some rows, as text."""
    forced = sum(row.num_forced for row in rows) / sum(row.num_tokens for row in rows)
    return [
        f"{statistics.median(row.num_tokens for row in rows):.0f}",
        f"{statistics.median(row.plain for row in rows):.1f}",
        f"{statistics.median(row.plain / row.free for row in rows):.3f}x",
        f"{statistics.median(row.auto / row.plain for row in rows):.2f}x",
        f"{100 * forced:.0f} %",
        f"{100 * statistics.median(row.mask_share for row in rows):.2f} %",
    ]


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL_NAME)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lab = Lab(options.model, options.streams)
    entries = [json.loads(line) for line in SCHEMAS.read_text(encoding="utf-8").splitlines()][: options.limit]
    rows: list[Row] = []
    for number in range(options.rounds):
        for entry in entries:
            rows.append(measure(lab, entry, number % 2 == 1))
            print(f"round {number + 1}, {entry['name']}: {rows[-1]}", file=sys.stderr, flush=True)
    print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    if not all(row.is_equal for row in rows):
        sys.exit("a draft changed an answer")


if __name__ == "__main__":
    main()
