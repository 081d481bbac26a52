"""`LlamaCppTokenizer`: llama.cpp's tokenizer (from the `xllamacpp` wheel), the reference for token ids."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import xllamacpp


class LlamaCppTokenizer:
    """The tokenizer of one GGUF file, used through llama.cpp's HTTP endpoints. It is a context manager."""

    def __init__(self, path: Path) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = 64
        params.n_parallel = 1
        params.n_gpu_layers = 0
        params.warmup = False
        params.verbosity = 0
        params.cache_ram_mib = 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        self._server = xllamacpp.Server(params)
        self._client = httpx.Client(base_url=self._server.listening_address, timeout=60)

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Returns the token ids of `text` alone."""
        return self._post("/tokenize", content=text, add_special=False, parse_special=parse_special)["tokens"]

    def encode_prompt(self, text: str) -> list[int]:
        """Returns the token ids of a prompt, with the tokens that the model adds."""
        return self._post("/tokenize", content=text, add_special=True, parse_special=True)["tokens"]

    def decode(self, token_ids: list[int]) -> str:
        """Returns the text of `token_ids`, with special tokens spelled out."""
        return self._post("/detokenize", tokens=token_ids)["content"]

    def _post(self, path: str, **body: object) -> Any:
        answer = self._client.post(path, json=body)
        answer.raise_for_status()
        return answer.json()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()
        del self._server
