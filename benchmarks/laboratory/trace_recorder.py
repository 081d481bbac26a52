"""Records acceptance traces with real models: the plain text of each prompt, then every drafter along it.

A draft model's chain at a position depends only on the text before it, bit for bit. The chains of many positions are
therefore drawn together: the text's KV is computed once, and the chains follow it like branches of a tree, with one
pass for each depth. One thing differs from serving: a slimmed draft model has already seen all tokens of the text.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from laboratory.trace import PromptTrace, Proposal, Trace
from paceline.backends.protocol import Model
from paceline.config import EngineConfig
from paceline.core import Batch, Plan, Request, Sequence
from paceline.drafters.chains.chain_batch import TokenRun, build_chain_batch
from paceline.drafters.chains.drawing import Drawer
from paceline.drafters.chains.growing_draft import DraftToken
from paceline.drafters.draft_model.kind import DraftModelKind
from paceline.drafters.draft_model.text import MOST_UNREAD, shortened
from paceline.drafters.protocol import Drafter
from paceline.drafters.selection import without_constraint_drafters
from paceline.engine import Engine
from paceline.engine.assembly import LoadedPair, build_parts, load_pair, measure_costs, priced_models
from paceline.engine.capacity import context_window_size, num_blocks_for
from paceline.operations.workload import Task
from paceline.sampling.sampler import SampleQuery
from paceline.sampling.sequence_sampler import SequenceSampler

MAX_WINDOW = 16
LEAST_DEPTH = 7
LEAST_SURVIVAL = 0.02
_CHUNK = 256
_ROWS_PER_PASS = 64


@dataclass(slots=True)
class _Chain:
    """The draft that follows the first `length` tokens of the text."""

    length: int
    first_slot: int
    guesses: list[DraftToken] = field(default_factory=list)
    survival: float = 1.0

    @property
    def token_ids(self) -> list[int]:
        """The tokens of all guesses."""
        return [guess.token_id for guess in self.guesses]

    def wants_second(self, confidence: float) -> bool:
        """Returns whether any setting could use a second choice next to a node of this confidence."""
        return self.survival * (1.0 - confidence) > LEAST_SURVIVAL

    @property
    def is_open(self) -> bool:
        """Whether any setting could use another node. A chain ends if it is both unlikely and longer than usual."""
        size = len(self.guesses)
        return size < MAX_WINDOW and (size < LEAST_DEPTH or self.survival >= LEAST_SURVIVAL)


class ChainRecorder:
    """Samples the chains of a drafter's model at all positions of a text. Replaces the model's KV store."""

    def __init__(self, model: Model, drawer: Drawer) -> None:
        self._model = model
        self._drawer = drawer

    def record(self, text: abc.Sequence[int], num_prompt_tokens: int, sampler: SequenceSampler) -> list[Proposal]:
        """Returns the proposal after each output token except the last. `sampler` is the sampler of the text."""
        block_size = self._model.kv.block_size
        num_blocks = -(-len(text) // block_size)
        lengths = range(num_prompt_tokens + 1, len(text))
        self._model.kv.allocate(num_blocks + -(-len(lengths) * MAX_WINDOW // block_size))
        table = list(range(num_blocks))
        self._read(list(text[: len(text) - 1]), table)
        chains = [_Chain(length, num_blocks * block_size + MAX_WINDOW * i) for i, length in enumerate(lengths)]
        for first in range(0, len(chains), _ROWS_PER_PASS):
            active = chains[first : first + _ROWS_PER_PASS]
            while active:
                self._deepen(active, text, table, sampler)
                active = [chain for chain in active if chain.is_open]
        return [Proposal.of_chain(chain.guesses) for chain in chains]

    def _read(self, text: list[int], table: list[int]) -> None:
        for first in range(0, len(text), _CHUNK):
            run = TokenRun(table, first, text[first : first + _CHUNK], needs_logits=True)
            self._model.forward(build_chain_batch([run], self._model.kv.block_size))

    def _deepen(
        self, chains: list[_Chain], text: abc.Sequence[int], table: list[int], sampler: SequenceSampler
    ) -> None:
        """Adds one token to each chain. A chain's first pass reads the last text token again, with the same K and V."""
        logits = self._model.forward(self._batch(chains, text, table))
        queries = [
            SampleQuery(row, sampler.rows, chain.length + len(chain.guesses), chain.token_ids, 0)
            for row, chain in enumerate(chains)
        ]
        guesses = self._drawer.draft_tokens(logits, queries, [chain.wants_second for chain in chains])
        for chain, guess in zip(chains, guesses, strict=True):
            chain.guesses.append(guess or DraftToken(0, 0.0))
            chain.survival *= chain.guesses[-1].confidence

    def _batch(self, chains: list[_Chain], text: abc.Sequence[int], table: list[int]) -> Batch:
        rows = [self._row(chain, text) for chain in chains]
        num_rows = len(rows)
        paths = [path for _, _, _, path in rows]
        return Batch(
            token_ids=np.array([token_id for token_id, _, _, _ in rows], np.int32),
            positions=np.array([position for _, position, _, _ in rows], np.int32),
            slots=np.array([slot for _, _, slot, _ in rows], np.int32),
            sequence_indices=np.arange(num_rows, dtype=np.int32),
            block_tables=np.repeat(np.array([table], np.int32), num_rows, axis=0),
            path_slots=np.array([slot for path in paths for slot in path], np.int32),
            path_offsets=np.cumsum([0, *map(len, paths)], dtype=np.int32),
            logit_rows=np.arange(num_rows, dtype=np.int32),
        )

    def _row(self, chain: _Chain, text: abc.Sequence[int]) -> tuple[int, int, int, list[int]]:
        """Returns token, position, slot and path of the row whose logits a chain needs next."""
        depth = len(chain.guesses)
        if depth == 0:
            return text[chain.length - 1], chain.length - 1, chain.length - 1, []
        path = [chain.first_slot + node for node in range(depth)]
        return chain.guesses[-1].token_id, chain.length + depth - 1, path[-1], path


@dataclass(frozen=True, slots=True)
class Recorder:
    """Loaded models, and the settings for recording with them."""

    config: EngineConfig
    pair: LoadedPair

    @classmethod
    def load(cls, config: EngineConfig) -> Recorder:
        """Loads the models. Raises what loading models raises."""
        pair = load_pair(config)
        pair = replace(pair, drafter_names=without_constraint_drafters(pair.drafter_names))
        return cls(config.model_copy(update={"max_batch_size": 1, "has_prefix_cache": False}), pair)

    def record(self, tasks: abc.Sequence[Task], *, max_tokens: int | None = None) -> Trace:
        """Records greedy answers, without answers of one token. Blocks until all are recorded."""
        costs = measure_costs(self.pair, self.config)
        prompts = [trace for task in tasks for trace in self._record_one(task, max_tokens)]
        return Trace(
            target=self.pair.target.name,
            draft=self.pair.draft.name if self.pair.draft else None,
            made_drafters=list(self._models()),
            costs=costs,
            prompts=prompts,
        )

    def _models(self) -> dict[str, Model]:
        return priced_models(self.pair, self.config, self.pair.drafter_names)

    def _record_one(self, task: Task, max_tokens: int | None) -> Iterator[PromptTrace]:
        num_blocks = num_blocks_for(context_window_size(self.config, self.pair.target.model.config))
        parts = build_parts(self.pair, self.config, self.pair.drafter_names, num_blocks)
        engine = Engine.from_parts(self.config, build_parts(self.pair, self.config, (), num_blocks))
        prompt = engine.tokenizer.encode_chat(task.messages)
        sampling = task.sampling(max_tokens=max_tokens)
        [completion] = engine.generate([prompt], sampling)
        if len(completion.token_ids) < 2:
            return
        request = Request(request_id=task.id, prompt_token_ids=prompt, sampling=sampling)
        proposals = {
            drafter.name: list(_along(drafter, request, completion.token_ids))
            for drafter in parts.drafters
            if drafter.is_free
        }
        vocab_size = self.pair.target.model.config.vocab_size
        sequence = Sequence(request, 0, list(prompt))
        for name, model in self._models().items():
            sampler = SequenceSampler.begin(self.pair.backend.sampler, sequence, vocab_size=vocab_size)
            recorder = ChainRecorder(model, Drawer(self.pair.backend.sampler, vocab_size))
            read = tokens_read(name, prompt)
            proposals[name] = recorder.record([*read, *completion.token_ids], len(read), sampler)
        yield PromptTrace(
            prompt_id=task.id,
            task=task.task,
            num_prompt_tokens=len(prompt),
            token_ids=completion.token_ids,
            proposals=proposals,
        )


def tokens_read(drafter: str, prompt: list[int]) -> list[int]:
    """Returns the tokens of a prompt that a drafter's model reads."""
    return shortened(prompt, max(0, len(prompt) - MOST_UNREAD)) if drafter == DraftModelKind.name else prompt


def _along(drafter: Drafter, request: Request, answer: abc.Sequence[int]) -> Iterator[Proposal]:
    """Yields a free drafter's proposal after each token of the answer except the last, as the text grows."""
    sequence = Sequence(request, 0, list(request.prompt_token_ids))
    drafter.begin(sequence)
    for token_id in answer[:-1]:
        sequence.token_ids.append(token_id)
        [draft] = drafter.propose([sequence], [Plan(drafter.name, MAX_WINDOW)]).drafts
        yield Proposal.of(draft)
    drafter.end(sequence)
