"""Compares the bits of the engine's answers with those kept in `benchmarks/bits/`. Code changes must not change them.

    bits.py check [FILE ...] [--instruction-set scalar]     exits 1 if an answer differs
    bits.py write FILE --model NAME [--prompts 20] [--prompt-length 32]
                                                            keeps the answers of plain decoding

Each prompt is answered greedily and sampled. An answer's fingerprint is a hash over its tokens, the bits of their
log-probabilities and a hash of each token's whole row of logits. `check` compares plain decoding and every drafter,
alone and all together, with the one fingerprint that is kept, so it also proves that drafting is lossless.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.architectures import read_model_config
from paceline.checkpoint import GgufFile
from paceline.config import EngineConfig
from paceline.controller.cost_model import StepCosts
from paceline.core import Request, SamplingParams
from paceline.drafters import find_drafter_kind
from paceline.drafters.selection import resolve_pair
from paceline.engine.assembly import LoadedPair, load_pair
from paceline.operations.verify import CommittedToken, RecordingVerifier, Run
from paceline.operations.verify_plan import cheap_drafts
from paceline.operations.workload import Task, mix, read_tasks

FOLDER = Path(__file__).parent / "bits"
NUM_TOKENS = 32
WINDOW = 7
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0, ignore_eos=True, num_logprobs=0, max_tokens=NUM_TOKENS, seed=1),
    "sampled": SamplingParams(
        temperature=0.8, top_p=0.95, ignore_eos=True, num_logprobs=0, max_tokens=NUM_TOKENS, seed=1
    ),
}
KINDS = ("code", "edit", "summarize", "json", "math", "chat", "story")


@dataclass(frozen=True)
class EngineSetup:
    """The drafters, and the costs that automatic mode plans with. Without costs every window is fixed."""

    drafters: tuple[str, ...]
    costs: StepCosts | None = None

    @property
    def name(self) -> str:
        """The name in the output."""
        return f"{' '.join(self.drafters) or 'plain'}{' auto' if self.costs else ''}"


def settings_of(drafters: Sequence[str]) -> list[EngineSetup]:
    """Returns plain decoding, each drafter alone, and automatic mode with all drafters."""
    alone = [EngineSetup((name,)) for name in drafters]
    priced = [name for name in drafters if not find_drafter_kind(name).is_free]
    return [EngineSetup(()), *alone, *([EngineSetup(tuple(drafters), cheap_drafts(priced))] if drafters else [])]


def config_of(model: str) -> EngineConfig:
    """Returns settings for several answers at a time, with half of the layers for shared-layers."""
    config = EngineConfig(model=model, context_window_size=1024, max_batch_size=4, num_speculative_tokens=WINDOW)
    with GgufFile.open(resolve_pair(config).target.path) as gguf:
        return config.model_copy(update={"shared_layers": read_model_config(gguf).num_layers // 2})


def fingerprint(tokens: Sequence[CommittedToken]) -> str:
    """Returns the hex digest of an answer's tokens, log-probabilities and rows of logits."""
    digest = hashlib.sha256()
    for token in tokens:
        digest.update(f"{token.token_id} {token.logprob_bits:08x} {token.row_hash}\n".encode())
    return digest.hexdigest()[:32]


def requests_of(pair: LoadedPair, tasks: Sequence[Task], prompt_length: int | None) -> Iterator[Request]:
    """Yields a greedy and a sampled request for each task. Cuts prompts to `prompt_length` tokens (None: no cut)."""
    for task in tasks:
        token_ids = pair.target.tokenizer.encode_chat(task.messages)[:prompt_length]
        for name, sampling in SAMPLINGS.items():
            yield Request(request_id=f"{task.id} {name}", prompt_token_ids=token_ids, sampling=sampling)


def answers_of(
    config: EngineConfig, pair: LoadedPair, setting: EngineSetup, requests: Sequence[Request]
) -> dict[str, str]:
    """Returns the fingerprints by request, from a new engine."""
    verifier = RecordingVerifier(pair.backend.sampler, has_row_hashes=True)
    run = Run.of(config, pair, setting.drafters, verifier, setting.costs)
    return {name: fingerprint(tokens) for name, tokens in run.answers(requests).items()}


def write(path: Path, model: str, num_prompts: int, prompt_length: int | None) -> None:
    """Writes the answers of plain decoding to the file."""
    config = config_of(model)
    pair = load_pair(config)
    tasks = mix(read_tasks(only=KINDS), num_prompts)
    answers = answers_of(config, pair, EngineSetup(()), list(requests_of(pair, tasks, prompt_length)))
    content = {
        "model": model,
        "num_tokens": NUM_TOKENS,
        "prompt_length": prompt_length,
        "tasks": [task.id for task in tasks],
        "answers": answers,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def check(path: Path, instruction_set: str | None, drafters: Sequence[str] | None = None) -> bool:
    """Prints a line for each setting. Returns whether all answers equal the kept ones. `drafters` None means all."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    config = config_of(kept["model"])
    pair = load_pair(config, instruction_set=instruction_set)
    by_id = {task.id: task for task in read_tasks()}
    requests = list(requests_of(pair, [by_id[name] for name in kept["tasks"]], kept["prompt_length"]))
    is_equal = True
    for setting in settings_of((*pair.drafter_names, "ngram") if drafters is None else drafters):
        start_s = time.perf_counter()
        answers = answers_of(config, pair, setting, requests)
        wrong = [name for name in kept["answers"] if answers[name] != kept["answers"][name]]
        is_equal = is_equal and not wrong
        result = f"DIFFERS: {', '.join(wrong)}" if wrong else f"{len(answers)} answers equal"
        seconds = time.perf_counter() - start_s
        print(f"{kept['model']} {pair.backend.instruction_set} {setting.name}: {result} ({seconds:.0f} s)")
    return is_equal


def main() -> int:
    """Runs the command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check")
    checking.add_argument("files", nargs="*", type=Path, default=sorted(FOLDER.glob("*.json")))
    checking.add_argument("--instruction-set")
    writing = commands.add_parser("write")
    writing.add_argument("file", type=Path)
    writing.add_argument("--model", required=True)
    writing.add_argument("--prompts", type=int, default=20)
    writing.add_argument("--prompt-length", type=int)
    arguments = parser.parse_args()
    if arguments.command == "write":
        write(arguments.file, arguments.model, arguments.prompts, arguments.prompt_length)
        return 0
    results = [check(path, arguments.instruction_set) for path in arguments.files]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
