"""Proves that constrained answers have their form, and that no drafter changes a bit of them.

    prove_constraints.py [--models NAME ...] [--schemas 300] [--first-seed 0] [--json FILE]

For each model it generates schemas, asks for an example of each at temperatures 0 and 1, with all drafters and without,
and prints how many schemas were refused and why, how many answers ended within 512 tokens, and how many of these
`jsonschema` accepts. It exits 1 if an answer that ended is not valid, or if two answers differ.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from laboratory.schemas import generate_schema

from paceline.checkpoint import DEFAULT_MODEL_NAME
from paceline.config import EngineConfig
from paceline.constraints.compile_check import CompileCheck
from paceline.core import Constraint, FinishReason, Request, SamplingParams
from paceline.core.errors import InvalidRequestError
from paceline.engine import Engine
from paceline.operations.timed_answers import TimedAnswer, answer_all

MODELS = ("smollm2-135m", DEFAULT_MODEL_NAME)
TEMPERATURES = (0.0, 1.0)
MAX_TOKENS = 512
BATCH_SIZE = 8


@dataclass
class Outcome:
    """The counts for one model. `refused` counts schemas by reason; the other numbers count answers."""

    num_schemas: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    num_answers: int = 0
    num_ended: int = 0
    invalid: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    num_forced: int = 0
    num_tokens: int = 0

    def add(self, name: str, schema: dict[str, Any], answer: TimedAnswer, plain: TimedAnswer) -> None:
        """Adds one answer, and the answer without drafts to the same request."""
        last = answer.outputs[-1]
        self.num_answers += 1
        self.num_tokens += len(answer.token_ids)
        self.num_forced += last.speculation.by_drafter.get("grammar", (0, 0))[1]
        if answer.token_ids != plain.token_ids:
            self.different.append(name)
        if last.finish_reason is FinishReason.STOP:
            self.num_ended += 1
            text = "".join(output.text for output in answer.outputs)
            if not is_valid(text, schema):
                self.invalid.append(f"{name}: {text}")


def is_valid(text: str, schema: dict[str, Any]) -> bool:
    """Returns whether the text is JSON that the schema allows, formats included."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    checker = Draft202012Validator.FORMAT_CHECKER
    return bool(Draft202012Validator(schema, format_checker=checker).is_valid(value))


def constraint_of(schema: dict[str, Any]) -> Constraint:
    """Returns the strict constraint."""
    return Constraint(kind="json_schema", source=json.dumps(schema))


async def refusals(schemas: Sequence[dict[str, Any]]) -> list[str | None]:
    """Returns for each schema why the server would refuse it; None if it would not."""
    check = CompileCheck()
    reasons: list[str | None] = []
    for schema in schemas:
        try:
            await check.check(constraint_of(schema))
            reasons.append(None)
        except InvalidRequestError as error:
            reasons.append(str(error).removeprefix("constraint cannot be honoured: ").splitlines()[0])
    check.close()
    return reasons


def requests(engine: Engine, schemas: dict[int, dict[str, Any]], temperature: float) -> Iterator[Request]:
    """Yields a request for each schema, by its seed."""
    for seed, schema in schemas.items():
        question = f"Give an example of a JSON document with {', '.join(schema['properties'])}, and nothing else."
        yield Request(
            request_id=f"schema {seed} at temperature {temperature:g}",
            prompt_token_ids=engine.tokenizer.encode_chat([{"role": "user", "content": question}]),
            sampling=SamplingParams(max_tokens=MAX_TOKENS, temperature=temperature, seed=seed),
            constraint=constraint_of(schema),
        )


def prove(model: str, seeds: Sequence[int]) -> Outcome:
    """Runs all schemas on one model."""
    generated = [generate_schema(seed) for seed in seeds]
    reasons = asyncio.run(refusals(generated))
    outcome = Outcome(len(seeds), Counter(reason for reason in reasons if reason is not None))
    kept = {seed: schema for seed, schema, reason in zip(seeds, generated, reasons, strict=True) if reason is None}
    answers: list[list[TimedAnswer]] = []
    for drafters in (None, ()):
        engine = Engine(EngineConfig(model=model, max_batch_size=BATCH_SIZE, drafters=drafters))
        answers.append(
            answer_all(engine, [one for temperature in TEMPERATURES for one in requests(engine, kept, temperature)])
        )
    names = [f"schema {seed} at temperature {temperature:g}" for temperature in TEMPERATURES for seed in kept]
    for name, schema, answer, plain in zip(names, [*kept.values()] * len(TEMPERATURES), *answers, strict=True):
        outcome.add(name, schema, answer, plain)
    return outcome


def describe(model: str, outcome: Outcome) -> str:
    """Returns the lines for one model."""
    share = 100 * outcome.num_ended / outcome.num_answers
    return "\n".join(
        [
            f"{model}: {outcome.num_schemas} schemas, {outcome.refused.total()} refused; of {outcome.num_answers} "
            f"answers {outcome.num_ended} ended within {MAX_TOKENS} tokens ({share:.1f} %), "
            f"{len(outcome.invalid)} of them invalid; {len(outcome.different)} differ from plain decoding; "
            f"{100 * outcome.num_forced / outcome.num_tokens:.1f} % of the tokens were forced drafts",
            *(f"  refused {count} times: {reason}" for reason, count in outcome.refused.most_common()),
            *(f"  invalid: {text[:300]}" for text in outcome.invalid),
            *(f"  differs: {name}" for name in outcome.different),
        ]
    )


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--schemas", type=int, default=300)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    outcomes: dict[str, Outcome] = {}
    for model in options.models:
        outcomes[model] = prove(model, range(options.first_seed, options.first_seed + options.schemas))
        print(describe(model, outcomes[model]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({model: vars(one) for model, one in outcomes.items()}, indent=2) + "\n")
    if any(one.invalid or one.different for one in outcomes.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
