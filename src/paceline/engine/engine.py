"""`Engine`: the interface to models, scheduler and step, for use in a program or in an engine process.

`add`, `step` and `abort` are for callers with their own loop; `generate` and `stream` run the loop themselves. Only one
thread at a time may use an engine; a step raises RuntimeError while another thread is in one.
"""

from __future__ import annotations

import secrets
import threading
from collections import abc, deque
from collections.abc import Iterator
from functools import partial
from typing import Self

from paceline.config import EngineConfig
from paceline.core import (
    Constraint,
    EngineStats,
    FinishReason,
    Output,
    Request,
    SamplingParams,
    Sequence,
    SpeculationParams,
)
from paceline.core.errors import InsufficientMemoryError, InvalidRequestError
from paceline.drafters import drafter_names
from paceline.engine.acceptance_stats import AcceptanceStats
from paceline.engine.assembly import load_engine_parts
from paceline.engine.capacity import context_window_size
from paceline.engine.collect_stats import collect_stats
from paceline.engine.commit import Commit
from paceline.engine.completion import Completion
from paceline.engine.drafter_group import DrafterGroup
from paceline.engine.local_requests import LocalRequests
from paceline.engine.mask_times import MaskTimes
from paceline.engine.parts import EngineParts
from paceline.engine.prompt_scores import PromptScorer
from paceline.engine.request_state import RequestState
from paceline.engine.scheduler import Scheduler, StepLimits
from paceline.engine.step import Stepper
from paceline.engine.text_stream import Finish, TextStream
from paceline.engine.verifier import Verifier
from paceline.kvcache import BlockManager, NoPrefixCache, PrefixCache
from paceline.sampling import RequestLimits, check_request
from paceline.sampling.constraints import Constraints, OutputConstraint
from paceline.sampling.sequence_sampler import SequenceSampler
from paceline.tokenizer import Tokenizer


class Engine:
    """Generates text for any number of requests at once. `epoch` counts the restarts of its process, for the outputs.

    The constructor raises what `load_engine_parts` raises if it cannot load the models of `config`.
    """

    def __init__(self, config: EngineConfig, *, epoch: int = 0) -> None:
        self._assemble(config, load_engine_parts(config), epoch)

    @classmethod
    def from_parts(cls, config: EngineConfig, parts: EngineParts, *, epoch: int = 0) -> Self:
        """Returns an engine of loaded models. It ignores the settings `model`, `draft_model` and `drafters`."""
        engine = cls.__new__(cls)
        engine._assemble(config, parts, epoch)
        return engine

    def _assemble(self, config: EngineConfig, parts: EngineParts, epoch: int) -> None:
        self.config = config
        self._epoch = epoch
        self.parts = parts
        names = {*drafter_names(), *(drafter.name for drafter in parts.drafters)}
        self._limits = RequestLimits(
            parts.target.config.vocab_size, context_window_size(config, parts.target.config), frozenset(names)
        )
        self._acceptance = AcceptanceStats()
        self._mask_times = MaskTimes()
        self._scheduler = _build_scheduler(config, parts, self._limits.context_window_size)
        self._drafters = DrafterGroup(parts.drafters, self._limits.vocab_size)
        self._constraints = Constraints(parts.constraints, parts.tokenizer)
        self._stepper = Stepper(
            scheduler=self._scheduler,
            controller=parts.controller,
            drafters=self._drafters,
            target=parts.target,
            verifier=parts.verifier or Verifier(parts.sampler),
            prompt_scorer=PromptScorer(parts.sampler, self._limits.vocab_size),
            acceptance=self._acceptance,
            mask_times=self._mask_times,
            vocab_size=self._limits.vocab_size,
        )
        self._states: dict[str, RequestState] = {}
        self._mailboxes: dict[str, deque[Output]] = {}
        self._unclaimed: list[Output] = []
        self._local_requests = LocalRequests(parts.tokenizer, self._states)
        self._num_steps = 0
        self._stepping = threading.Lock()
        self._forgotten_in_step: list[str] = []

    @property
    def tokenizer(self) -> Tokenizer:
        """The target's tokenizer."""
        return self.parts.tokenizer

    @property
    def drafter_names(self) -> tuple[str, ...]:
        """The names of the drafters that run; a drafter that failed is not among them."""
        return self._drafters.names

    @property
    def context_window_size(self) -> int:
        """The most tokens that a prompt and its answer may have together."""
        return self._limits.context_window_size

    @property
    def vocab_size(self) -> int:
        """The number of token ids of the target."""
        return self._limits.vocab_size

    @property
    def has_unfinished(self) -> bool:
        """Whether `step` has anything to compute or to return."""
        return self._scheduler.has_unfinished or bool(self._unclaimed)

    def add(self, request: Request, prepared: OutputConstraint | None = None) -> None:
        """Takes a request, whose outputs `step` will return. Raises InvalidRequestError or ContextOverflowError.

        `prepared` is what `prepare` returned for the request's constraint (None: it is compiled now).

        If the request's resumed tokens already end it, the next `step` returns its last output.
        """
        request = check_request(request, self._limits)
        if request.request_id in self._states:
            raise InvalidRequestError(f"request id {request.request_id} is in use; choose another", "request_id")
        state, finish = self._begin(request, prepared or self.prepare(request.constraint))
        self._states[request.request_id] = state
        self.parts.samplers[request.request_id] = state.sampler
        self._scheduler.add(state)
        if finish is not None:
            self._end(state, finish)

    def prepare(self, constraint: Constraint | None) -> OutputConstraint | None:
        """Returns a compiled constraint, for one request. Any thread may call it, also during a step.

        Raises InvalidRequestError if the constraint cannot be compiled.
        """
        return self._constraints.begin(constraint)

    def abort(self, request_id: str) -> None:
        """Ends a request; its last output has the finish reason `abort`. An unknown id is ignored."""
        state = self._states.get(request_id)
        if state is not None:
            self._end(state, Finish(FinishReason.ABORT))

    def step(self) -> list[Output]:
        """Runs one forward pass of the target for all requests; returns the new outputs of requests that `add` took."""
        self._advance()
        outputs, self._unclaimed = self._unclaimed, []
        return outputs

    def generate(
        self,
        prompts: abc.Sequence[str | list[int]],
        sampling: SamplingParams | None = None,
        speculation: SpeculationParams | None = None,
        constraint: Constraint | None = None,
    ) -> list[Completion]:
        """Answers all prompts as one batch, blocks until the last is done, and returns the answers in order.

        A prompt is text or token ids. With `constraint`, all answers have its form. Raises InvalidRequestError, before
        it computes anything, if a prompt cannot be answered or if `prompts` is a single text.
        """
        if isinstance(prompts, str | bytes):
            raise InvalidRequestError("prompts is a single text; pass a list of prompts, [prompt] for one", "prompts")
        make = partial(self._local_requests.make, sampling=sampling, speculation=speculation, constraint=constraint)
        requests = [make(prompt) for prompt in prompts]
        for request in requests:
            check_request(request, self._limits)
        outputs = {request.request_id: deque[Output]() for request in requests}
        self._mailboxes |= outputs
        try:
            for request in requests:
                self.add(request)
            while any(request.request_id in self._states for request in requests):
                self._advance()
        finally:
            for request_id in outputs:
                self._forget(request_id)
        return [Completion.from_outputs(request.prompt_token_ids, outputs[request.request_id]) for request in requests]

    def stream(
        self,
        prompt: str | list[int],
        sampling: SamplingParams | None = None,
        speculation: SpeculationParams | None = None,
        constraint: Constraint | None = None,
    ) -> Iterator[Output]:
        """Yields the outputs of one prompt as they come; closing the iterator aborts. Several streams may take turns.

        The work starts when the first output is asked for; only then it raises InvalidRequestError.
        """
        request = self._local_requests.make(prompt, sampling, speculation, constraint)
        outputs = self._mailboxes[request.request_id] = deque()
        try:
            self.add(request)
            while outputs or request.request_id in self._states:
                while outputs:
                    yield outputs.popleft()
                self._advance()
        finally:
            self._forget(request.request_id)

    def stats(self) -> EngineStats:
        """Returns the current gauges, and the counters since the start."""
        times = self.parts.controller.times
        return collect_stats(self._scheduler, self._acceptance, self._mask_times, times, self._num_steps)

    def clear_prefix_cache(self) -> None:
        """Forgets all cached prefixes; running requests keep their blocks."""
        self._scheduler.prefix_cache.clear()

    def check_integrity(self) -> None:
        """Raises RuntimeError unless KV blocks, block tables and prefix cache agree; for tests and idle times."""
        self._scheduler.check_integrity()

    def _begin(self, request: Request, constraint: OutputConstraint | None) -> tuple[RequestState, Finish | None]:
        """Returns the request's state after its resumed tokens, and the finish if these already end the request."""
        sampling = request.sampling
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        sequence = Sequence(request, seed, [*request.prompt_token_ids, *request.resumed_token_ids])
        room = self.context_window_size - sequence.num_prompt_tokens
        max_output_tokens = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        stream = TextStream(request, self.tokenizer, max_output_tokens)
        sampler = SequenceSampler.begin(
            self.parts.sampler,
            sequence,
            vocab_size=self.vocab_size,
            ending_token_ids=self.tokenizer.eos_token_ids.union(sampling.stop_token_ids),
            constraint=constraint,
        )
        state = RequestState(sequence, stream, sampler, sequence.num_prompt_tokens + max_output_tokens)
        state.prompt_logprobs = [] if sampling.has_prompt_logprobs else None
        for token_id in request.resumed_token_ids:
            progress = stream.push(token_id)
            if progress.finish is not None:
                return state, progress.finish
        return state, None

    def _advance(self) -> None:
        if not self._scheduler.has_unfinished:
            return
        if not self._stepping.acquire(blocking=False):
            raise RuntimeError("another thread is in a step of this engine; use it from one thread at a time")
        try:
            self._num_steps += 1
            commits = self._stepper.step()
        finally:
            self._stepping.release()
        for commit in commits:
            self._deliver(commit)
        while self._forgotten_in_step:
            self._forget(self._forgotten_in_step.pop())

    def _end(self, state: RequestState, finish: Finish) -> None:
        self._scheduler.finish(state, finish.reason)
        self._deliver(Commit.ended(state, finish))

    def _deliver(self, commit: Commit) -> None:
        output = commit.output(self._epoch)
        self._mailboxes.get(output.request_id, self._unclaimed).append(output)
        if commit.finish is not None:
            del self._states[output.request_id]
            del self.parts.samplers[output.request_id]

    def _forget(self, request_id: str) -> None:
        """Ends a request of `generate` or `stream` that nobody reads any more. If the garbage collector closes a stream
        during a step, the request ends after that step."""
        if self._stepping.locked():
            self._forgotten_in_step.append(request_id)
            return
        self.abort(request_id)
        del self._mailboxes[request_id]


def _build_scheduler(config: EngineConfig, parts: EngineParts, context_size: int) -> Scheduler:
    """Allocates the target's KV cache and returns the scheduler for it."""
    block_size = parts.target.kv.block_size
    if parts.num_blocks * block_size < context_size:
        raise InsufficientMemoryError(
            f"{parts.num_blocks} KV blocks of {block_size} tokens cannot hold a context of {context_size} tokens; "
            "choose a smaller --context-window-size"
        )
    parts.target.kv.allocate(parts.num_blocks)
    blocks = BlockManager(parts.num_blocks, block_size)
    prefix_cache = PrefixCache(blocks) if config.has_prefix_cache else NoPrefixCache()
    limits = StepLimits(config.max_batch_size, config.prefill_chunk_size, config.num_speculative_tokens)
    return Scheduler(blocks, prefix_cache, limits)
