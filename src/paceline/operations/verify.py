"""Checks on a user's own model that nothing changes the text. It runs every variant of a plan and compares the tokens,
and the bits of their log-probabilities, with plain decoding of one sequence at a time.

Each variant runs twice on the same engine, first with a cold and then with a warm prefix cache. Greedy and sampled
requests share its batches. The module `verify_plan` says which variants run.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from msgspec import structs

from paceline.architectures import read_model_config
from paceline.backends.registry import find_backend
from paceline.checkpoint import GgufFile, ResolvedModel
from paceline.config import EngineConfig
from paceline.controller.cost_model import StepCosts
from paceline.core import ModelConfig, Output, Request, SamplingParams, Verdict
from paceline.core.errors import ConfigError, PacelineError
from paceline.drafters import find_drafter_kind
from paceline.drafters.registry import built_in_names
from paceline.drafters.selection import resolve_pair
from paceline.engine import Engine
from paceline.engine.assembly import LoadedPair, build_parts, load_pair
from paceline.engine.capacity import context_window_size, num_blocks_for
from paceline.engine.verifier import Checks, Verifier
from paceline.machine.cores import num_usable_cores
from paceline.operations.verify_plan import (
    FORM,
    NUM_RAW_PROMPTS,
    PROMPTS,
    Machine,
    Scope,
    Variant,
    VerificationPlan,
    make_plan,
)
from paceline.sampling.sampler import Logits, Sampler
from paceline.tokenizer import Tokenizer

_GREEDY = SamplingParams(temperature=0.0, ignore_eos=True, num_logprobs=0)
_SAMPLED = SamplingParams(temperature=0.8, top_p=0.95, ignore_eos=True, num_logprobs=0)
_MIN_CONTEXT_SIZE = 16
DEFAULT_MAX_THREADS = 2


@dataclass(frozen=True, slots=True)
class CommittedToken:
    """A token, the 32 bits of its log-probability, and the hash of its logits row (None: not asked for)."""

    token_id: int
    logprob_bits: int
    row_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first difference between a run and plain decoding: the prompt and the output position, both counted from 0,
    and both tokens with their texts. A token is None if its answer ended before."""

    prompt_index: int
    sampling: str
    position: int
    expected: CommittedToken | None
    actual: CommittedToken | None
    expected_text: str
    actual_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one run of one variant: the counts of its tokens, and the first difference, if there is one."""

    machine: Machine
    variant: Variant
    cache: str
    num_tokens: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_cached_tokens: int
    duration_s: float
    difference: Difference | None


class RecordingVerifier(Verifier):
    """A verifier that keeps the hashes of logits rows of committed tokens, by sequence id and output position."""

    def __init__(self, sampler: Sampler, *, has_row_hashes: bool = False) -> None:
        super().__init__(sampler, has_row_hashes=has_row_hashes)
        self.row_hashes: dict[tuple[str, int], str] = {}

    def verify(self, checks: Checks, logits: Logits, first_rows: list[int]) -> list[Verdict]:
        """Does what the base class does, and keeps the hashes."""
        verdicts = super().verify(checks, logits, first_rows)
        for sequence, verdict in zip(checks.sequences, verdicts, strict=True):
            for position, row_hash in enumerate(verdict.row_hashes, sequence.num_output_tokens):
                self.row_hashes[sequence.sequence_id, position] = row_hash
        return verdicts


@dataclass(frozen=True, slots=True)
class Run:
    """An engine for one variant, on loaded models, and its verifier."""

    engine: Engine
    verifier: RecordingVerifier

    @classmethod
    def of(
        cls,
        config: EngineConfig,
        pair: LoadedPair,
        drafters: tuple[str, ...],
        verifier: RecordingVerifier,
        costs: StepCosts | None = None,
    ) -> Run:
        context_size = context_window_size(config, pair.target.model.config)
        num_blocks = config.max_batch_size * num_blocks_for(context_size)
        parts = replace(build_parts(pair, config, drafters, num_blocks, costs), verifier=verifier)
        return cls(Engine.from_parts(config, parts), verifier)

    def answers(self, requests: Iterable[Request]) -> dict[str, list[CommittedToken]]:
        """Starts all requests together, blocks until the last one ends, and returns the tokens by request id."""
        self.verifier.row_hashes.clear()
        answers: dict[str, list[CommittedToken]] = {}
        for request in requests:
            self.engine.add(request)
            answers[request.request_id] = []
        while self.engine.has_unfinished:
            for output in self.engine.step():
                answers[output.request_id] += self._committed(output)
        return answers

    def _committed(self, output: Output) -> Iterator[CommittedToken]:
        if output.error is not None:
            raise PacelineError(f"request {output.request_id} ended early: {output.error}")
        for position, entry in enumerate(output.logprobs or (), output.first_token_index):
            (bits,) = struct.unpack("<I", struct.pack("<f", entry.logprob))
            yield CommittedToken(entry.token_id, bits, self.verifier.row_hashes.get((output.request_id, position)))


@dataclass(slots=True)
class Verification:
    """Carries out a plan on the models of `config`."""

    config: EngineConfig
    plan: VerificationPlan
    has_row_hashes: bool = False
    _prompts: list[list[int]] = field(default_factory=list)
    _expected: dict[str, list[CommittedToken]] = field(default_factory=dict)

    def checks(self) -> Iterator[Check]:
        """Runs the plan and yields each check; stops after the first check with a difference.

        Weights are loaded once for each `Machine` of the plan. Raises what `load_pair` raises, and PacelineError if a
        drafter failed, because the check then says nothing about that drafter.
        """
        for machine_plan in self.plan.machines:
            machine = machine_plan.machine
            config = self.config.model_copy(update={"num_threads": machine.num_threads})
            pair = load_pair(config, instruction_set=machine.instruction_set)
            if not self._expected:
                self._record_reference(pair, machine)
            for variant in machine_plan.variants:
                for check in self._check(pair, machine, variant):
                    yield check
                    if check.difference is not None:
                        return

    def _record_reference(self, pair: LoadedPair, machine: Machine) -> None:
        """Records the expected answers with plain decoding, one sequence at a time, without a prefix cache."""
        plan = self.plan
        room = pair.target.model.config.max_context - plan.num_tokens - 1
        tokenizer = pair.target.tokenizer
        self._prompts = [token_ids[:room] for token_ids in _encode_prompts(tokenizer)[: plan.num_prompts]]
        variant = Variant(
            drafters=(),
            window=0,
            batch_size=1,
            prefill_chunk_size=256,
            num_prompts=plan.num_prompts,
            num_tokens=plan.num_tokens,
        )
        run = Run.of(self._engine_config(variant, has_prefix_cache=False), pair, (), self._verifier(pair))
        self._expected = run.answers(self._requests(variant))

    def _check(self, pair: LoadedPair, machine: Machine, variant: Variant) -> Iterator[Check]:
        config = self._engine_config(variant, has_prefix_cache=True)
        run = Run.of(config, pair, variant.drafters, self._verifier(pair), variant.costs)
        for cache in ("cold", "warm"):
            before, start_s = run.engine.stats(), time.perf_counter()
            answers = run.answers(self._requests(variant))
            after = run.engine.stats()
            if set(run.engine.drafter_names) != set(variant.drafters):
                raise PacelineError(f"a drafter of {', '.join(variant.drafters)} failed; see the log above")
            yield Check(
                machine=machine,
                variant=variant,
                cache=cache,
                num_tokens=sum(map(len, answers.values())),
                num_draft_tokens=after.num_draft_tokens - before.num_draft_tokens,
                num_accepted_tokens=after.num_accepted_tokens - before.num_accepted_tokens,
                num_cached_tokens=after.num_prefix_hit_tokens - before.num_prefix_hit_tokens,
                duration_s=time.perf_counter() - start_s,
                difference=self._first_difference(answers, variant.num_tokens, pair.target.tokenizer),
            )

    def _verifier(self, pair: LoadedPair) -> RecordingVerifier:
        return RecordingVerifier(pair.backend.sampler, has_row_hashes=self.has_row_hashes)

    def _engine_config(self, variant: Variant, *, has_prefix_cache: bool) -> EngineConfig:
        longest = max(map(len, self._prompts)) + self.plan.num_tokens + 1
        return self.config.model_copy(
            update={
                "num_speculative_tokens": variant.window,
                "max_batch_size": variant.batch_size,
                "prefill_chunk_size": variant.prefill_chunk_size,
                "context_window_size": max(_MIN_CONTEXT_SIZE, longest),
                "has_prefix_cache": has_prefix_cache,
            }
        )

    def _requests(self, variant: Variant) -> Iterator[Request]:
        """Yields three requests for each prompt: a greedy one, a sampled one with the prompt's own seed, and one whose
        answer is JSON."""
        samplings = (("greedy", _GREEDY, None), ("sampled", _SAMPLED, None), ("constrained", _SAMPLED, FORM))
        for index, token_ids in enumerate(self._prompts[: variant.num_prompts]):
            for name, sampling, constraint in samplings:
                yield Request(
                    request_id=f"{index} {name}",
                    prompt_token_ids=token_ids,
                    sampling=structs.replace(sampling, max_tokens=variant.num_tokens, seed=index + 1),
                    constraint=constraint,
                )

    def _first_difference(
        self, answers: dict[str, list[CommittedToken]], num_tokens: int, tokenizer: Tokenizer
    ) -> Difference | None:
        for request_id, actual in answers.items():
            expected = self._expected[request_id][:num_tokens]
            position = first_difference(expected, actual)
            if position is not None:
                index, sampling = request_id.split()
                pair = [tokens[position] if position < len(tokens) else None for tokens in (expected, actual)]
                texts = [tokenizer.decode([token.token_id]) if token else "" for token in pair]
                return Difference(
                    prompt_index=int(index),
                    sampling=sampling,
                    position=position,
                    expected=pair[0],
                    actual=pair[1],
                    expected_text=texts[0],
                    actual_text=texts[1],
                )
        return None


def begin_verification(config: EngineConfig, scope: Scope, *, has_row_hashes: bool = False) -> Verification:
    """Returns a verification of the models of `config`, with 1 to `num_threads` threads (None: at most 2).

    If `config` names no drafters, it uses every built-in drafter that can run. The drafter shared-layers then uses half
    of the target's layers, unless `config` says how many. Raises ModelNotFoundError, DownloadError, CheckpointError,
    UnsupportedModelError and ConfigError.
    """
    resolved = resolve_pair(config)
    drafters = resolved.drafter_names
    if drafters and config.drafters is None:
        target = _read_config(resolved.target)
        for name in (name for name in built_in_names() if name not in drafters):
            config, is_added = _try_to_enable(config, name, target)
            drafters = (*drafters, name) if is_added else drafters
    max_threads = config.num_threads or min(DEFAULT_MAX_THREADS, num_usable_cores())
    instruction_sets = find_backend(config.backend).instruction_sets()
    return Verification(config, make_plan(scope, drafters, instruction_sets, max_threads), has_row_hashes)


def _try_to_enable(config: EngineConfig, name: str, target: ModelConfig) -> tuple[EngineConfig, bool]:
    """Returns the settings completed with what this drafter needs, and whether the drafter can run with them."""
    kind = find_drafter_kind(name)
    enabled = kind.enabled(config, target)
    try:
        kind.check_settings(enabled)
        kind.check(enabled, target)
    except ConfigError:
        return config, False
    return enabled, not kind.uses_draft_model


def _read_config(resolved: ResolvedModel) -> ModelConfig:
    with GgufFile.open(resolved.path) as gguf:
        return read_model_config(gguf)


def first_difference(expected: list[CommittedToken], actual: list[CommittedToken]) -> int | None:
    """Returns the first index at which the lists differ, and None if they are equal. A shorter list differs where it
    ends."""
    for position, (left, right) in enumerate(zip(expected, actual, strict=False)):
        if left != right:
            return position
    return None if len(expected) == len(actual) else min(len(expected), len(actual))


def _encode_prompts(tokenizer: Tokenizer) -> list[list[int]]:
    if not tokenizer.has_chat_template:
        return [tokenizer.encode_prompt(text) for text in PROMPTS]
    raw, questions = PROMPTS[:NUM_RAW_PROMPTS], PROMPTS[NUM_RAW_PROMPTS:]
    chats = [tokenizer.encode_chat([{"role": "user", "content": text}]) for text in questions]
    return [*(tokenizer.encode_prompt(text) for text in raw), *chats]
