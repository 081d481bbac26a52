"""`verify` finds no difference on a sound engine, and finds a fault at the right place."""

from __future__ import annotations

import pytest

from paceline.backends.native.model import instruction_sets
from paceline.config import EngineConfig
from paceline.engine import assembly
from paceline.operations import verify as verify_module
from paceline.operations.verify import CommittedToken, Verification, begin_verification, first_difference
from paceline.operations.verify_plan import (
    ALL_WINDOWS,
    BATCH_SIZES,
    Machine,
    MachinePlan,
    Scope,
    Variant,
    VerificationPlan,
    make_plan,
)
from tests.operations.faulty_model import make_faulty

DRAFTERS = ("suffix", "grammar", "draft-model", "ngram", "shared-layers")


def small_plan(batch_size: int, *, num_prompts: int = 2, num_tokens: int = 8) -> VerificationPlan:
    """Returns a plan with only plain decoding, in one batch size, on the fastest instruction set."""
    variant = Variant(
        drafters=(),
        window=0,
        batch_size=batch_size,
        prefill_chunk_size=64,
        num_prompts=num_prompts,
        num_tokens=num_tokens,
    )
    machine = Machine(instruction_sets()[-1], 1)
    return VerificationPlan(num_prompts, num_tokens, (MachinePlan(machine, (variant,)),))


def load_with_fault(monkeypatch: pytest.MonkeyPatch, rise: float | None) -> None:
    """Makes `verify` load models with a fault at token 70 from now on."""

    def load_faulty(config: EngineConfig, *, instruction_set: str | None = None) -> assembly.LoadedPair:
        return make_faulty(assembly.load_pair(config, instruction_set=instruction_set), token_id=70, rise=rise)

    monkeypatch.setattr(verify_module, "load_pair", load_faulty)


def test_a_sound_engine_passes_the_quick_plan(pair_config: EngineConfig) -> None:
    verification = begin_verification(pair_config, Scope.QUICK, has_row_hashes=True)
    checks = list(verification.checks())
    assert len(checks) == 2 * sum(len(plan.variants) for plan in verification.plan.machines)
    assert {check.difference for check in checks} == {None}
    assert {check.machine.instruction_set for check in checks} == set(instruction_sets())
    assert {drafter for check in checks for drafter in check.variant.drafters} == set(DRAFTERS)
    assert sum(check.num_accepted_tokens for check in checks) > 100
    assert all(check.num_cached_tokens > 0 for check in checks if check.cache == "warm")
    assert all(check.num_tokens == 3 * check.variant.num_prompts * check.variant.num_tokens for check in checks)


@pytest.mark.parametrize("has_row_hashes", [False, True])
def test_a_fault_in_a_logit_is_found_where_it_is(pair_config: EngineConfig, has_row_hashes: bool, monkeypatch) -> None:
    load_with_fault(monkeypatch, rise=1000.0)
    checks = list(Verification(pair_config, small_plan(4), has_row_hashes).checks())
    assert len(checks) == 1
    difference = checks[0].difference
    assert difference is not None
    assert difference.actual is not None
    assert difference.expected is not None
    assert difference.actual.token_id == 70
    assert difference.expected.token_id != 70
    assert (difference.actual.row_hash is not None) == has_row_hashes
    # In a batch of four, a replay shows to which request and position the second row of logits belongs first.
    assert (difference.prompt_index, difference.sampling, difference.position) == first_touched(pair_config)


def first_touched(config: EngineConfig) -> tuple[int, str, int]:
    """Returns the first prompt, sampling and position that got the second row of logits in the sound engine.

    First means first in the order in which `verify` compares.
    """
    touched: list[tuple[str, int]] = []

    class Watching(verify_module.RecordingVerifier):
        def verify(self, checks, logits, first_rows):
            if len(logits) > 1:
                second = checks.sequences[1]
                touched.append((second.sequence_id, second.num_output_tokens))
            return super().verify(checks, logits, first_rows)

    plan = small_plan(4)
    sound = Verification(config, plan)
    machine = plan.machines[0].machine
    pair = assembly.load_pair(config.model_copy(update={"num_threads": 1}))
    sound._record_reference(pair, machine)
    variant = plan.machines[0].variants[0]
    watching = Watching(pair.backend.sampler)
    run = verify_module.Run.of(sound._engine_config(variant, has_prefix_cache=True), pair, (), watching)
    run.answers(sound._requests(variant))
    request_id = min(request_id for request_id, _ in touched)
    position = min(position for touched_id, position in touched if touched_id == request_id)
    index, sampling = request_id.split()
    return int(index), sampling, position


def test_a_single_bit_of_a_log_probability_is_found(pair_config: EngineConfig, monkeypatch) -> None:
    load_with_fault(monkeypatch, rise=None)
    checks = list(Verification(pair_config, small_plan(4), has_row_hashes=True).checks())
    difference = checks[-1].difference
    assert difference is not None
    assert difference.expected.token_id == difference.actual.token_id
    assert difference.expected.row_hash != difference.actual.row_hash


def test_a_single_sequence_does_not_meet_the_fault(pair_config: EngineConfig, monkeypatch) -> None:
    load_with_fault(monkeypatch, rise=1000.0)
    checks = list(Verification(pair_config, small_plan(1)).checks())
    assert [check.difference for check in checks] == [None, None]


def test_first_difference_sees_tokens_bits_hashes_and_lengths() -> None:
    tokens = [CommittedToken(1, 10, "a"), CommittedToken(2, 20, "b")]
    assert first_difference(tokens, list(tokens)) is None
    assert first_difference(tokens, tokens[:1]) == 1
    assert first_difference([], tokens) == 0
    assert first_difference(tokens, [tokens[0], CommittedToken(3, 20, "b")]) == 1
    assert first_difference(tokens, [CommittedToken(1, 11, "a"), tokens[1]]) == 0
    assert first_difference(tokens, [CommittedToken(1, 10, "c"), tokens[1]]) == 0


def test_the_full_plan_has_every_window_batch_size_thread_count_and_instruction_set() -> None:
    plan = make_plan(Scope.FULL, DRAFTERS, ("scalar", "avx2", "avx512"), 2)
    variants = plan.machines[0].variants
    assert plan.machines[0].machine == Machine("avx512", 2)
    assert {item.machine for item in plan.machines} == {
        Machine(instruction_set, threads) for instruction_set in ("scalar", "avx2", "avx512") for threads in (1, 2)
    }
    for group in (*((drafter,) for drafter in DRAFTERS), DRAFTERS):
        fixed = (variant for variant in variants if variant.costs is None)
        assert tuple(variant.window for variant in fixed if variant.drafters == group) == ALL_WINDOWS
    assert [variant.drafters for variant in variants if variant.costs is not None] == [DRAFTERS] * 3
    assert {variant.batch_size for variant in variants} == set(BATCH_SIZES)
    assert all(item.variants for item in plan.machines)


def test_a_plan_without_drafters_still_compares_plain_batches() -> None:
    plan = make_plan(Scope.QUICK, (), ("scalar",), 1)
    assert [item.machine for item in plan.machines] == [Machine("scalar", 1)]
    assert [(variant.drafters, variant.batch_size) for variant in plan.machines[0].variants] == [((), 8)]
