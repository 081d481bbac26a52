"""Measures a model's step by rows and context, against the time that this machine needs to read the weights once.

    step.py [--model NAME] [--rows 1,8,16] [--contexts 0,2000] [--rounds 5] [--json OUT]

A step is the forward pass of a chain of rows (a token and its draft) with logits and greedy sampling for each. Its
floor is the number of bytes of the file that a pass reads, divided by the read bandwidth, which is measured before each
step. The script then measures prompt processing, sampling of 16 rows of real logits, and the parts of an engine's step
for 1 and 16 sequences.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from prompts import text_passages
from report import integers, markdown, write_report
from step_clock import SECTIONS, StepClock, timed_parts, timed_sampling

from paceline.architectures.tensors import EMBEDDING_NAME, OUTPUT_NAME
from paceline.backends.protocol import BLOCK_SIZE, Backend, KvStore
from paceline.checkpoint import DEFAULT_MODEL_NAME, GgufFile
from paceline.config import EngineConfig
from paceline.core import Batch, Request, SamplingParams
from paceline.drafters.selection import resolve_pair, without_constraint_drafters
from paceline.engine import Engine
from paceline.engine.assembly import LoadedModel, LoadedPair, build_parts, load_pair
from paceline.engine.capacity import context_window_size
from paceline.machine.limits import BUFFER_BYTES, MachineProbe
from paceline.operations.provenance import read_model_provenance, read_provenance
from paceline.operations.workload import Task, read_tasks
from paceline.sampling.sampler import SampleQuery

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.8, top_p=0.95)
NUM_SAMPLED_ROWS = 16
SPLIT_PROMPT_LENGTH = 64
PLAIN = "plain"


@dataclass(frozen=True)
class StepTime:
    """One case: the median time, and the median ratio to the floor that was measured before each step."""

    num_rows: int
    context: int
    step_ms: float
    floor_ratio: float


@dataclass(frozen=True)
class StepParts:
    """Medians of an engine's steps, in milliseconds. `python_ms` is the time outside the other parts."""

    mode: str
    num_sequences: int
    total_ms: float
    drafting_ms: float
    forward_ms: float
    sampling_ms: float
    python_ms: float


def pass_bytes(gguf: GgufFile) -> int:
    """Returns the file's bytes that a pass reads: all tensors, but the embedding only if it is the output too."""
    is_tied = OUTPUT_NAME not in gguf.tensors
    return sum(tensor.data.nbytes for name, tensor in gguf.tensors.items() if name != EMBEDDING_NAME or is_tied)


def floor_ratios(steps_s: Sequence[float], reads_bytes_per_s: Sequence[float], num_bytes: int) -> list[float]:
    """Returns each step's time divided by the time to read the bytes at the rate measured before it."""
    return [step_s * rate / num_bytes for step_s, rate in zip(steps_s, reads_bytes_per_s, strict=True)]


def chain_batch(first: int, token_ids: Sequence[int], num_blocks: int, logit_rows: Sequence[int]) -> Batch:
    """Returns a batch of tokens of one sequence from position `first` on. Its blocks are the first `num_blocks`."""
    positions = np.arange(first, first + len(token_ids), dtype=np.int32)
    block_tables = np.arange(num_blocks, dtype=np.int32)[None]
    return Batch(
        token_ids=np.array(token_ids, np.int32),
        positions=positions,
        slots=positions,
        sequence_indices=np.zeros(len(token_ids), np.int32),
        block_tables=block_tables,
        path_slots=np.zeros(0, np.int32),
        path_offsets=np.zeros(len(token_ids) + 1, np.int32),
        logit_rows=np.array(logit_rows, np.int32),
    )


def fill_kv(kv: KvStore, num_blocks: int) -> None:
    """Fills `num_blocks` blocks of the store with random K and V, because computing real ones would take minutes."""
    kv.allocate(num_blocks)
    # Any two of these bytes are a float16 that is positive, normal and below 1.
    content = np.random.default_rng(0).integers(0x10, 0x3C, kv.read_block(0).nbytes, dtype=np.uint8)
    for block in range(num_blocks):
        kv.write_block(block, content)


class StepBench:
    """Measures the steps of one loaded target."""

    def __init__(self, backend: Backend, loaded: LoadedModel, passages: Sequence[list[int]], max_tokens: int) -> None:
        self.sampler = backend.sampler
        self.model = loaded.model
        self.passages = passages
        self.num_blocks = -(-max_tokens // loaded.model.kv.block_size)
        fill_kv(self.model.kv, self.num_blocks)

    def batch(self, first: int, token_ids: Sequence[int], logit_rows: Sequence[int]) -> Batch:
        """Returns a batch of consecutive tokens of the bench's one sequence."""
        return chain_batch(first, token_ids, self.num_blocks, logit_rows)

    def step_s(self, num_rows: int, context: int) -> float:
        """Returns the seconds of one step of `num_rows` rows after `context` tokens."""
        batch = self.batch(context, self.passages[0][:num_rows], range(num_rows))
        greedy = self.sampler.begin(GREEDY, prompt_token_ids=[], seed=0)
        queries = [SampleQuery(row, greedy, context + 1 + row) for row in range(num_rows)]
        start_s = time.perf_counter()
        self.sampler.sample(self.model.forward(batch), queries)
        return time.perf_counter() - start_s

    def measure_steps(
        self, probe: MachineProbe, rows: Sequence[int], contexts: Sequence[int], num_rounds: int, num_bytes: int
    ) -> list[StepTime]:
        """Measures every case once in each round, so that a drift of the machine's speed affects all cases alike."""
        cases = list(itertools.product(contexts, rows))
        times: dict[tuple[int, int], list[float]] = {case: [] for case in cases}
        rates: dict[tuple[int, int], list[float]] = {case: [] for case in cases}
        for context, num_rows in cases:
            self.step_s(num_rows, context)
        for _ in range(num_rounds):
            for context, num_rows in cases:
                rates[context, num_rows].append(probe.measure().read_bytes_per_s)
                times[context, num_rows].append(self.step_s(num_rows, context))
        return [
            StepTime(
                num_rows=num_rows,
                context=context,
                step_ms=statistics.median(times[context, num_rows]) * 1e3,
                floor_ratio=statistics.median(
                    floor_ratios(times[context, num_rows], rates[context, num_rows], num_bytes)
                ),
            )
            for context, num_rows in cases
        ]

    def prompt_tokens_per_s(self, num_tokens: int, chunk_size: int, num_rounds: int) -> float:
        """Returns the median rate of reading a prompt in chunks, as the engine does, with logits of its last token."""
        times_s = []
        for round_index in range(num_rounds):
            token_ids = self.passages[round_index % len(self.passages)][:num_tokens]
            start_s = time.perf_counter()
            for first in range(0, num_tokens, chunk_size):
                chunk = token_ids[first : first + chunk_size]
                is_last = first + chunk_size >= num_tokens
                self.model.forward(self.batch(first, chunk, [len(chunk) - 1] if is_last else []))
            times_s.append(time.perf_counter() - start_s)
        return num_tokens / statistics.median(times_s)

    def sampling_ms(self, params: SamplingParams, num_repeats: int) -> float:
        """Returns the median time of sampling rows of real logits in one call."""
        token_ids = self.passages[0][:SPLIT_PROMPT_LENGTH]
        rows = range(len(token_ids) - NUM_SAMPLED_ROWS, len(token_ids))
        logits = np.array(self.model.forward(self.batch(0, token_ids, rows)))
        samplers = [self.sampler.begin(params, prompt_token_ids=[], seed=seed) for seed in range(len(rows))]
        times_s = []
        for repeat in range(num_repeats):
            queries = [SampleQuery(row, sampler, repeat) for row, sampler in enumerate(samplers)]
            start_s = time.perf_counter()
            self.sampler.sample(logits, queries)
            times_s.append(time.perf_counter() - start_s)
        return statistics.median(times_s) * 1e3


def split_context_size(config: EngineConfig, num_sequences: int, steps: int) -> int:
    """Returns the tokens of the prompt and the most that are committed while others start and steps are measured."""
    return SPLIT_PROMPT_LENGTH + (num_sequences + steps + 1) * (config.num_speculative_tokens + 1)


def split_steps(
    pair: LoadedPair, config: EngineConfig, drafters: tuple[str, ...], prompts: Sequence[list[int]], steps: int
) -> StepParts:
    """Measures and returns the parts of an engine's steps while it decodes all prompts at once."""
    clock = StepClock()
    num_tokens = split_context_size(config, len(prompts), steps)
    config = config.model_copy(
        update={"max_batch_size": len(prompts), "context_window_size": num_tokens, "has_prefix_cache": False}
    )
    num_blocks = len(prompts) * -(-num_tokens // BLOCK_SIZE)
    engine = Engine.from_parts(config, timed_parts(build_parts(pair, config, drafters, num_blocks), clock))
    for index, prompt in enumerate(prompts):
        sampling = SamplingParams(temperature=0.0, ignore_eos=True)
        engine.add(Request(request_id=str(index), prompt_token_ids=prompt, sampling=sampling))
    samples: list[dict[str, float]] = []
    started: set[str] = set()
    with timed_sampling(clock):
        while len(started) < len(prompts):
            started |= {output.request_id for output in engine.step()}
        clock.take()
        for _ in range(steps):
            start_s = time.perf_counter()
            engine.step()
            samples.append({"total": time.perf_counter() - start_s, **clock.take()})
    for index in range(len(prompts)):
        engine.abort(str(index))
    return summarize_parts("+".join(drafters) or PLAIN, len(prompts), samples)


def summarize_parts(mode: str, num_sequences: int, samples: Sequence[dict[str, float]]) -> StepParts:
    """Returns the medians of the parts. Python's time is computed for each step before its median is taken."""
    medians = {name: statistics.median(sample[name] for sample in samples) * 1e3 for name in ("total", *SECTIONS)}
    python_s = statistics.median(sample["total"] - sum(sample[name] for name in SECTIONS) for sample in samples)
    return StepParts(
        mode=mode,
        num_sequences=num_sequences,
        total_ms=medians["total"],
        drafting_ms=medians["drafting"],
        forward_ms=medians["forward"],
        sampling_ms=medians["sampling"],
        python_ms=python_s * 1e3,
    )


def render_steps(steps: Sequence[StepTime]) -> str:
    """Returns a table of milliseconds and ratios to the floor, by number of rows and context."""
    contexts = list(dict.fromkeys(step.context for step in steps))
    by_case = {(step.num_rows, step.context): step for step in steps}
    rows = [
        [
            str(num_rows),
            *(f"{by_case[num_rows, c].step_ms:.1f} ({by_case[num_rows, c].floor_ratio:.2f})" for c in contexts),
        ]
        for num_rows in dict.fromkeys(step.num_rows for step in steps)
    ]
    return markdown(["rows", *(f"context {context}" for context in contexts)], rows)


def render_parts(parts: Sequence[StepParts]) -> str:
    """Returns a table with a row for each mode and number of sequences."""
    rows = [
        [
            f"{part.mode}, {part.num_sequences}",
            *(
                f"{value:.2f}"
                for value in (part.total_ms, part.drafting_ms, part.forward_ms, part.sampling_ms, part.python_ms)
            ),
        ]
        for part in parts
    ]
    return markdown(["mode, sequences", "step ms", "drafting", "forward", "sampling", "Python"], rows)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL_NAME)
    parser.add_argument("--draft-model", help="default: the catalog's choice")
    parser.add_argument("--rows", type=integers, default=[1, 2, 4, 8, 12, 16, 32])
    parser.add_argument("--contexts", type=integers, default=[0, 512, 2000, 8000])
    parser.add_argument("--sequences", type=integers, default=[1, 16])
    parser.add_argument("--prompt-length", type=int, default=512)
    parser.add_argument("--split-steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--buffer-mib", type=int, default=BUFFER_BYTES >> 20, help="of the bandwidth measurement")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def engine_config(options: argparse.Namespace) -> EngineConfig:
    """Returns settings whose context has room for the longest case, the prompt, and what the engine's steps commit."""
    config = EngineConfig(model=options.model, draft_model=options.draft_model, num_threads=options.threads)
    context_size = max(
        max(options.contexts) + max(options.rows) + 1,
        options.prompt_length,
        split_context_size(config, max(options.sequences), options.split_steps),
    )
    return config.model_copy(update={"context_window_size": context_size})


def measure_splits(
    pair: LoadedPair, config: EngineConfig, tasks: Sequence[Task], options: argparse.Namespace
) -> list[StepParts]:
    """Measures plain decoding and all drafters together, for each number of sequences."""
    prompts = text_passages(pair.target.tokenizer, tasks, SPLIT_PROMPT_LENGTH, max(options.sequences))
    modes: list[tuple[str, ...]] = [(), without_constraint_drafters(pair.drafter_names)]
    return [
        split_steps(pair, config, drafters, prompts[:num_sequences], options.split_steps)
        for drafters in modes
        for num_sequences in options.sequences
    ]


def measure(pair: LoadedPair, config: EngineConfig, num_bytes: int, options: argparse.Namespace) -> dict[str, object]:
    """Measures and prints one part after the other."""
    tasks = read_tasks()
    length = max(options.prompt_length, SPLIT_PROMPT_LENGTH, *options.rows)
    passages = text_passages(pair.target.tokenizer, tasks, length, options.rounds)
    context_size = context_window_size(config, pair.target.model.config)
    bench = StepBench(pair.backend, pair.target, passages, context_size)
    probe = MachineProbe(options.threads, pair.backend.instruction_set, buffer_bytes=options.buffer_mib << 20)
    steps = bench.measure_steps(probe, options.rows, options.contexts, options.rounds, num_bytes)
    print(f"step in ms, and its ratio to the floor of {num_bytes / 1e6:.0f} MB\n\n{render_steps(steps)}\n", flush=True)
    prompt_rate = bench.prompt_tokens_per_s(options.prompt_length, config.prefill_chunk_size, options.rounds)
    print(f"prompt of {options.prompt_length} tokens: {prompt_rate:.0f} tokens/s\n", flush=True)
    sampling = {
        "greedy": bench.sampling_ms(GREEDY, 4 * options.rounds),
        "temperature 0.8, top-p 0.95": bench.sampling_ms(SAMPLED, 4 * options.rounds),
    }
    vocab_size = pair.target.model.config.vocab_size
    for name, sampling_ms in sampling.items():
        print(f"sampling {NUM_SAMPLED_ROWS} rows of {vocab_size}, {name}: {sampling_ms:.2f} ms", flush=True)
    parts = measure_splits(pair, config, tasks, options)
    print(f"\n{render_parts(parts)}")
    return {
        "pass_bytes": num_bytes,
        "limits": dataclasses.asdict(probe.measure()),
        "steps": [dataclasses.asdict(step) for step in steps],
        "prompt_tokens_per_s": prompt_rate,
        "sampling_ms": sampling,
        "parts": [dataclasses.asdict(part) for part in parts],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Loads the pair once, measures, prints tables and writes the numbers to the file."""
    options = parse_options(arguments)
    config = engine_config(options)
    resolved = resolve_pair(config)
    with GgufFile.open(resolved.target.path) as gguf:
        num_bytes = pass_bytes(gguf)
    pair = load_pair(config)
    content = measure(pair, config, num_bytes, options)
    if options.json:
        provenance = read_provenance(
            pair.backend.instruction_set,
            options.threads,
            read_model_provenance(resolved.target.name, resolved.target.path),
            read_model_provenance(resolved.draft.name, resolved.draft.path) if resolved.draft else None,
        )
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        write_report(options.json, provenance, {"settings": settings, **content})


if __name__ == "__main__":
    main()
