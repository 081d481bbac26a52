"""Plans what `verify` compares with plain decoding: the prompts, and the variants for each `Machine`.

A quick plan covers every drafter and every instruction set, and some windows, batch sizes and thread counts. A full
plan covers every window of every drafter with the best instruction set, and all thread counts. Both plans include
automatic mode, with made-up costs so that it decides alike on all computers.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle

from paceline.controller import DrafterCosts, RowTable, StepCosts
from paceline.core import Constraint
from paceline.drafters import find_drafter_kind

BATCH_SIZES = (1, 2, 3, 4, 5, 6, 7, 8)
CHUNK_SIZES = (256, 16, 64, 7)
NUM_RAW_PROMPTS = 1  # the model continues the first prompt as it is; the others are questions in a chat
ALL_WINDOWS = tuple(range(1, 17))
FEW_WINDOWS = (1, 3, 7, 16)
SCALAR = "scalar"


def cheap_drafts(drafters: Iterable[str]) -> StepCosts:
    """Returns made-up costs with which these drafters, which run models, nearly always pay."""
    costs = DrafterCosts(RowTable((1, 8), (0.02, 0.03)), 0.0001)
    return StepCosts(RowTable((1, 64), (1.0, 1.1)), dict.fromkeys(drafters, costs))


def dear_drafts(drafters: Iterable[str]) -> StepCosts:
    """Returns made-up costs with which these drafters, which run models, pay only now and then."""
    costs = DrafterCosts(RowTable((1, 8), (0.2, 0.3)), 0.01)
    return StepCosts(RowTable((1, 4, 5, 16), (1.0, 1.1, 1.5, 2.5)), dict.fromkeys(drafters, costs))


PROMPTS = (
    'def fibonacci(n):\n    """Return the n-th Fibonacci number, n from 0."""\n    if n <',
    "Write a Python function that merges two sorted lists, with a docstring.",
    "Return this unchanged:\nclass Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n",
    "Give me a JSON array of four books with title, author and year. Only JSON.",
    "Count from 1 to 30 in words, separated by commas.",
    "Explique en une phrase ce qu'est un arbre binaire, puis 用一句话解释什么是哈希表。",
    "What should I look at when I choose a used bicycle?",
)


FORM = Constraint(
    kind="json_schema",
    source='{"type": "object", "properties": {"title": {"type": "string", "maxLength": 40}, "items": {"type": "array", '
    '"items": {"type": "string", "maxLength": 20}, "maxItems": 4}}, "required": ["title", "items"], '
    '"additionalProperties": false}',
)
"""The form of the constrained answers."""


class Scope(enum.StrEnum):
    """How much to compare."""

    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Machine:
    """The instruction set and the number of threads with which a variant runs."""

    instruction_set: str
    num_threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to run the engine, which must not change the text. `window` 0 is plain decoding. If `costs` is given, the
    engine plans by them in automatic mode, and `window` is the maximum."""

    drafters: tuple[str, ...]
    window: int
    batch_size: int
    prefill_chunk_size: int
    num_prompts: int
    num_tokens: int
    costs: StepCosts | None = None


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """The variants to run on one `Machine`. The reference answers come from the first machine of a plan."""

    machine: Machine
    variants: tuple[Variant, ...]


@dataclass(frozen=True, slots=True)
class VerificationPlan:
    """The variants to compare, and the numbers of prompts and tokens of the reference, which no variant exceeds."""

    num_prompts: int
    num_tokens: int
    machines: tuple[MachinePlan, ...]


def make_plan(
    scope: Scope, drafters: tuple[str, ...], instruction_sets: tuple[str, ...], max_threads: int
) -> VerificationPlan:
    """Returns the plan for a computer with these instruction sets, slowest first, and 1 to `max_threads` threads."""
    is_full = scope is Scope.FULL
    num_prompts, num_tokens = (len(PROMPTS), 32) if is_full else (4, 16)
    best = Machine(instruction_sets[-1], max_threads)
    groups = _drafter_groups(drafters)
    variants = [*_variants(groups, ALL_WINDOWS if is_full else FEW_WINDOWS, num_prompts, num_tokens)]
    plans = [MachinePlan(best, (*variants, *_automatic_variants(drafters, num_prompts, num_tokens)))]
    for machine in _other_machines(scope, best, instruction_sets):
        if machine.instruction_set == SCALAR:  # hundreds of times slower
            variants = [*_variants(groups[-1:], (3,), 1, 4)]
        else:
            variants = [*_variants(groups, FEW_WINDOWS if is_full else (5,), 2, num_tokens // 2)]
        plans.append(MachinePlan(machine, tuple(variants)))
    return VerificationPlan(num_prompts, num_tokens, tuple(plans))


def _drafter_groups(drafters: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Returns the sets of drafters to run: no drafter (plain decoding), each drafter alone, and all together."""
    alone: list[tuple[str, ...]] = [(drafter,) for drafter in drafters]
    return [(), *alone, *([drafters] if len(drafters) > 1 else [])]


def _automatic_variants(drafters: tuple[str, ...], num_prompts: int, num_tokens: int) -> Iterator[Variant]:
    """Yields automatic mode with all drafters, with costs that make drafts cheap and with costs that make them dear."""
    priced = [name for name in drafters if not find_drafter_kind(name).is_free]
    cheap, dear = cheap_drafts(priced), dear_drafts(priced)
    for batch_size, costs in ((1, cheap), (3, cheap), (8, dear)) if drafters else ():
        yield Variant(
            drafters=drafters,
            window=ALL_WINDOWS[-1],
            batch_size=batch_size,
            prefill_chunk_size=64,
            num_prompts=num_prompts,
            num_tokens=num_tokens,
            costs=costs,
        )


def _other_machines(scope: Scope, best: Machine, instruction_sets: tuple[str, ...]) -> Iterator[Machine]:
    """Yields the machines other than the best one, best instruction set first.

    If the scope is full, these are all of them. Otherwise these are the best instruction set with one thread, and every
    other instruction set with all threads.
    """
    for instruction_set in reversed(instruction_sets):
        for num_threads in range(best.num_threads, 0, -1):
            is_quick = num_threads == (1 if instruction_set == best.instruction_set else best.num_threads)
            if (scope is Scope.FULL or is_quick) and Machine(instruction_set, num_threads) != best:
                yield Machine(instruction_set, num_threads)


def _variants(
    groups: list[tuple[str, ...]], windows: tuple[int, ...], num_prompts: int, num_tokens: int
) -> Iterator[Variant]:
    """Yields each group of drafters with each window. The batch and chunk sizes change from variant to variant."""
    batch_sizes, chunk_sizes = cycle(reversed(BATCH_SIZES)), cycle(CHUNK_SIZES)
    for group in groups:
        for window in windows if group else (0,):
            yield Variant(
                drafters=group,
                window=window,
                batch_size=next(batch_sizes),
                prefill_chunk_size=next(chunk_sizes),
                num_prompts=num_prompts,
                num_tokens=num_tokens,
            )
