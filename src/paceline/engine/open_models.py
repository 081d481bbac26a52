"""Model files that are open but not loaded: what the settings and the files together cannot be is refused here, before
minutes go into weights.

`loading` resolves names to files before and loads weights after.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from paceline.architectures import read_model_config
from paceline.checkpoint import GgufFile, ResolvedModel, tokenizer_cache_dir
from paceline.core import ModelConfig
from paceline.drafters.draft_model.vocabulary_map import VocabularyMap
from paceline.sampling import RequestLimits
from paceline.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A mapped file and what its metadata say. `identity` changes with the file."""

    name: str
    gguf: GgufFile
    config: ModelConfig
    tokenizer: Tokenizer
    identity: str


@dataclass(frozen=True, slots=True)
class OpenPair:
    """A target and its draft model (None without one), what a request may ask of them, and the drafters that can run.

    `vocabulary_map` relates the tokens of two models with different ones (None: they are the same).
    """

    target: OpenModel
    draft: OpenModel | None
    limits: RequestLimits
    drafter_names: tuple[str, ...]
    vocabulary_map: VocabularyMap | None


@contextmanager
def open_model(resolved: ResolvedModel) -> Iterator[OpenModel]:
    """Maps the file and builds its tokenizer. Raises CheckpointError."""
    with GgufFile.open(resolved.path) as gguf:
        config = read_model_config(gguf)
        tokenizer = Tokenizer.from_gguf(gguf, tokenizer_cache_dir(os.environ))
        status = resolved.path.stat()
        identity = f"{resolved.path} {status.st_size} {status.st_mtime_ns}"
        yield OpenModel(resolved.name, gguf, config, tokenizer, identity)
