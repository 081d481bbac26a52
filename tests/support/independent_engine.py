"""Runs llama.cpp (the `xllamacpp` wheel), which shares no code with Paceline, and compares a `Model` with it.

    with IndependentEngine(path) as engine:
        text = engine.generate(engine.tokenize("Once upon a time"), num_tokens=200, num_logprobs=10)
    comparison = compare(model, text)

The comparison is teacher-forced: the model reads the engine's greedy text, and its distribution at each position is
compared with the engine's. The engine runs without flash attention and with an F32 cache, because its flash attention
adds in half floats. It still rounds activations to 8 bits before quantized weights (with a scale for 32 of them, for
K-quants for 256), so even the exact distribution differs from the engine's. `Comparison` says by how much. The engine
has one thread, because its threads spin while they wait, which is very slow on a busy machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np
import numpy.typing as npt
import xllamacpp

from paceline.backends.protocol import Model
from paceline.core import Batch

_CHUNK_ROWS = 128
_TIMEOUT_S = 600


@dataclass(frozen=True)
class EngineText:
    """A greedy continuation and the engine's most likely tokens before each of its tokens.

    `positions` [n] are indices into `token_ids`. They leave out tokens for which the engine reports no distribution,
    because a later token completes their character. `top_token_ids` and `top_logprobs` are [n, num_logprobs], likeliest
    first.
    """

    prompt_token_ids: list[int]
    token_ids: list[int]
    positions: npt.NDArray[np.int64]
    top_token_ids: npt.NDArray[np.int64]
    top_logprobs: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """A model compared with an `EngineText`; all arrays have one entry for each position.

    `is_same_top` says whether the likeliest token is the engine's. `engine_margins` is the engine's first
    log-probability minus its second. `top_differences` is the absolute difference of the log-probabilities of the
    engine's likeliest token, and `mean_differences` is that difference averaged over all reported tokens.
    """

    is_same_top: npt.NDArray[np.bool_]
    engine_margins: npt.NDArray[np.float64]
    top_differences: npt.NDArray[np.float64]
    mean_differences: npt.NDArray[np.float64]

    @property
    def agreement(self) -> float:
        """The share of positions with the same likeliest token."""
        return float(self.is_same_top.mean())

    @property
    def mean_top_difference(self) -> float:
        """The mean of `top_differences`, in nat."""
        return float(self.top_differences.mean())

    def num_disagreements_beyond(self, margin: float) -> int:
        """Returns at how many positions the likeliest token differs although the engine's margin exceeds `margin`."""
        return int(np.count_nonzero(~self.is_same_top & (self.engine_margins > margin)))

    @classmethod
    def joined(cls, parts: list[Comparison]) -> Comparison:
        """Returns the comparisons of several texts as one."""
        fields = ("is_same_top", "engine_margins", "top_differences", "mean_differences")
        return cls(*(np.concatenate([getattr(part, field) for part in parts]) for field in fields))


class IndependentEngine:
    """llama.cpp, which serves one GGUF file in this process. It is a context manager."""

    def __init__(self, path: Path, *, context_size: int = 2048) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = context_size
        params.n_parallel = 1
        params.n_gpu_layers = 0
        params.warmup = False
        params.verbosity = 0
        params.cache_ram_mib = 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        self._server = xllamacpp.Server(params)
        self._client = httpx.Client(base_url=self._server.listening_address, timeout=_TIMEOUT_S)

    def tokenize(self, text: str) -> list[int]:
        """Returns the token ids of `text`, with special tokens parsed, after the beginning-of-sequence token if the
        model has one."""
        return self._post("/tokenize", content=text, add_special=True, parse_special=True)["tokens"]

    def generate(self, prompt_token_ids: list[int], *, num_tokens: int, num_logprobs: int) -> EngineText:
        """Returns the greedy continuation, up to `num_tokens` or the end of the sequence."""
        answer = self._post(
            "/completion",
            prompt=prompt_token_ids,
            n_predict=num_tokens,
            n_probs=num_logprobs,
            temperature=0.0,
            post_sampling_probs=False,
            cache_prompt=False,
            return_tokens=True,
        )
        token_ids = answer["tokens"]
        reported = list(_aligned(token_ids, answer["completion_probabilities"]))
        tops = [entry["top_logprobs"] for _, entry in reported]
        return EngineText(
            prompt_token_ids,
            token_ids,
            np.array([position for position, _ in reported]),
            np.array([[candidate["id"] for candidate in top] for top in tops]),
            np.array([[candidate["logprob"] for candidate in top] for top in tops]),
        )

    def close(self) -> None:
        """Ends the engine."""
        self._client.close()
        del self._server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _post(self, path: str, **body: object) -> Any:
        answer = self._client.post(path, json=body)
        answer.raise_for_status()
        return answer.json()


def _aligned(token_ids: list[int], entries: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields each entry with the index of its token. Entries are in order, but tokens inside a character have none."""
    remaining = iter(entries)
    entry = next(remaining, None)
    for position, token_id in enumerate(token_ids):
        if entry is not None and entry["id"] == token_id:
            yield position, entry
            entry = next(remaining, None)


def compare(model: Model, text: EngineText) -> Comparison:
    """Runs the text through `model`, whose KV store it replaces, and compares distributions at `text.positions`."""
    is_same_top, differences = [], []
    reported = {position: index for index, position in enumerate(text.positions.tolist())}
    for position, logprobs in enumerate(teacher_forced(model, text.prompt_token_ids, text.token_ids)):
        if position in reported:
            top_token_ids = text.top_token_ids[reported[position]]
            is_same_top.append(logprobs.argmax() == top_token_ids[0])
            differences.append(np.abs(logprobs[top_token_ids] - text.top_logprobs[reported[position]]))
    margins = text.top_logprobs[:, 0] - text.top_logprobs[:, 1]
    top_differences = np.array([difference[0] for difference in differences])
    mean_differences = np.array([difference.mean() for difference in differences])
    return Comparison(np.array(is_same_top), margins, top_differences, mean_differences)


def teacher_forced(
    model: Model, prompt_token_ids: list[int], continuation: list[int]
) -> Iterator[npt.NDArray[np.float64]]:
    """Yields the model's log-probabilities [vocab_size] before each token of a continuation; computes in chunks."""
    token_ids = [*prompt_token_ids, *continuation[:-1]]
    first_logit_row = len(prompt_token_ids) - 1
    model.kv.allocate(-(-len(token_ids) // model.kv.block_size))
    for start in range(0, len(token_ids), _CHUNK_ROWS):
        stop = min(start + _CHUNK_ROWS, len(token_ids))
        logits = model.forward(_chunk(token_ids, start, stop, first_logit_row, model.kv.num_blocks))
        for row in logits.astype(np.float64):
            shifted = row - row.max()
            yield shifted - np.log(np.exp(shifted).sum())


def _chunk(token_ids: list[int], start: int, stop: int, first_logit_row: int, num_blocks: int) -> Batch:
    """Returns a batch with the tokens from `start` to `stop` - 1 of a sequence whose block table is 0, 1, 2, ..."""
    num_rows = stop - start
    positions = np.arange(start, stop, dtype=np.int32)
    return Batch(
        token_ids=np.array(token_ids[start:stop], np.int32),
        positions=positions,
        slots=positions,
        sequence_indices=np.zeros(num_rows, np.int32),
        block_tables=np.arange(num_blocks, dtype=np.int32)[None],
        path_slots=np.zeros(0, np.int32),
        path_offsets=np.zeros(num_rows + 1, np.int32),
        logit_rows=np.arange(max(0, first_logit_row - start), num_rows, dtype=np.int32),
    )
