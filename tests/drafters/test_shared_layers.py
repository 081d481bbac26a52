"""The drafter shared-layers guesses the same as a draft model of these layers, but need not read the texts."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.architectures import read_model_config
from paceline.backends.native.model import NativeModel, ThreadPool
from paceline.backends.native.sampler import NativeSampler
from paceline.backends.protocol import Model
from paceline.checkpoint import GgufFile
from paceline.core import Batch, Draft, Float32Array, Plan, Request, SamplingParams, Sequence
from paceline.drafters.chains.chain_batch import TokenRun, build_chain_batch
from paceline.drafters.chains.drawing import Drawer
from paceline.drafters.draft_model.drafter import DraftModelDrafter
from paceline.drafters.shared_layers import SharedLayersDrafter
from paceline.sampling.sequence_sampler import SequenceSampler
from tests.support.tiny_gguf import TinyPair, write_tiny_pair

NUM_BLOCKS = 48
BLOCK_SIZE = 16
GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.8, top_p=0.95, presence_penalty=0.5)


@pytest.fixture(scope="module")
def tiny_pair(tmp_path_factory) -> TinyPair:
    """Returns a pair whose draft model is the target's first two layers."""
    return write_tiny_pair(tmp_path_factory.mktemp("shared"), "qwen2", "Q4_K", num_draft_layers=2)


class Bench:
    """A target with its KV, as an engine keeps it, and both drafters on the same sequences."""

    def __init__(self, pair: TinyPair) -> None:
        with GgufFile.open(pair.target) as target, GgufFile.open(pair.draft) as draft:
            self.target, model = (
                NativeModel(gguf, read_model_config(gguf), threads=ThreadPool(2)) for gguf in (target, draft)
            )
        self.target.kv.allocate(NUM_BLOCKS)
        self.samplers: dict[str, SequenceSampler] = {}
        self.drawer = Drawer(NativeSampler(), self.target.config.vocab_size)
        self.drafter = SharedLayersDrafter(self.target.first_layers(2), self.samplers, self.drawer)
        self.draft_model = DraftModelDrafter(
            model, self.samplers, self.drawer, num_blocks=NUM_BLOCKS, prefill_chunk_size=1000
        )
        self.num_blocks_taken = 0

    def begin(self, name: str, size: int, params: SamplingParams = GREEDY, num_blocks: int = 5) -> Sequence:
        """Returns a new sequence for both drafters; the target has computed all tokens but the last."""
        token_ids = [int(token) for token in np.random.default_rng(size).integers(0, 250, size)]
        request = Request(request_id=name, prompt_token_ids=list(token_ids), sampling=params)
        first = self.num_blocks_taken
        self.num_blocks_taken += num_blocks
        table = list(range(first, first + num_blocks))[::-1]
        sequence = Sequence(request=request, seed=size, token_ids=token_ids, block_table=table)
        self.samplers[name] = SequenceSampler.begin(NativeSampler(), sequence, vocab_size=self.target.config.vocab_size)
        self.compute(sequence)
        for drafter in (self.drafter, self.draft_model):
            drafter.begin(sequence)
        return sequence

    def compute(self, sequence: Sequence) -> None:
        """Computes in the target all tokens that it has not computed yet, except the last one."""
        first = sequence.num_computed_tokens
        if new := sequence.token_ids[first:-1]:
            self.target.forward(build_chain_batch([TokenRun(sequence.block_table, first, new, False)], BLOCK_SIZE))
        sequence.num_computed_tokens = len(sequence.token_ids) - 1

    def commit(self, sequence: Sequence, token_ids: list[int]) -> None:
        sequence.token_ids += token_ids
        self.samplers[sequence.sequence_id].append(token_ids)
        self.compute(sequence)


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_drafts_are_those_of_a_draft_model_whatever_was_drafted_before(tiny_pair, params):
    """Windows and verdicts are random, so KV of rejected draft tokens lies in the slots that are written next."""
    bench = Bench(tiny_pair)
    generator = np.random.default_rng(2)
    sequences = [bench.begin(f"s{i}", 5 + 9 * i, params) for i in range(3)]
    num_tokens = 0
    for _ in range(8):
        windows = [int(window) for window in generator.integers(0, 7, 3)]
        stop_below = float(generator.choice([0.0, 0.1]))
        plans = [Plan("x", window, stop_below, (0.2,) * 3) for window in windows]
        drafts = bench.drafter.propose(sequences, plans).drafts
        expected = bench.draft_model.propose(sequences, plans).drafts
        for draft, other in zip(drafts, expected, strict=True):
            assert (draft.token_ids, draft.parents, draft.confidences) == (
                other.token_ids,
                other.parents,
                other.confidences,
            )
            num_tokens += len(draft)
        for sequence, draft in zip(sequences, drafts, strict=True):
            num_accepted = int(generator.integers(0, len(draft) + 1))
            bench.commit(sequence, [*draft.token_ids[:num_accepted], int(generator.integers(0, 250))])
        for drafter in (bench.drafter, bench.draft_model):
            drafter.observe(sequences, [])
    assert num_tokens > 25


def test_a_draft_has_a_name_and_stays_within_its_window_and_the_slots_there_are(tiny_pair):
    bench = Bench(tiny_pair)
    roomy, tight = bench.begin("roomy", 30), bench.begin("tight", 30, num_blocks=2)
    plans = [Plan("shared-layers", 8), Plan("shared-layers", 8)]
    drafts = bench.drafter.propose([roomy, tight], plans).drafts
    assert [len(draft) for draft in drafts] == [8, 3]
    assert drafts[1].token_ids == drafts[0].token_ids[:3]
    assert drafts[0].drafter == "shared-layers"
    assert drafts[0].is_chain
    assert bench.drafter.propose([roomy], [Plan("shared-layers", 0)]).drafts == [Draft()]
    assert bench.drafter.propose([roomy], [Plan("shared-layers", 8, stop_below=1.1)]).drafts == [
        Draft(drafter="shared-layers")  # a token was drawn, but it was not likely enough
    ]
    assert bench.drafter.propose([], []).drafts == []


class CountingModel:
    """First layers that count the rows of each pass."""

    def __init__(self, layers: Model) -> None:
        self._layers = layers
        self.config, self.kv = layers.config, layers.kv
        self.num_rows: list[int] = []

    def forward(self, batch: Batch) -> Float32Array:
        self.num_rows.append(batch.num_rows)
        return self._layers.forward(batch)


def test_it_reads_nothing_twice(tiny_pair):
    bench = Bench(tiny_pair)
    model = CountingModel(bench.target.first_layers(2))
    drafter = SharedLayersDrafter(model, bench.samplers, bench.drawer)
    sequences = [bench.begin("long", 60), bench.begin("short", 3)]
    drafts = drafter.propose(sequences, [Plan("shared-layers", 2), Plan("shared-layers", 4)]).drafts
    assert [len(draft) for draft in drafts] == [2, 4]
    assert model.num_rows == [2, 2, 1, 1]
    assert [drafter.num_missed(sequence) for sequence in sequences] == [0, 0]
