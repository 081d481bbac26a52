"""Model files that are open, but whose weights are not loaded yet.

`assembly` checks the settings against open files, so it refuses what cannot work before it spends time on weights.
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
    """A memory-mapped model file, with its config and tokenizer. `identity` is the file's fingerprint."""

    name: str
    gguf: GgufFile
    config: ModelConfig
    tokenizer: Tokenizer
    identity: str


@dataclass(frozen=True, slots=True)
class OpenPair:
    """A target and its draft model (None: there is none), the limits of requests, and the drafters that can run.

    `vocabulary_map` maps the tokens of the two models to each other (None: their vocabularies are equal).
    """

    target: OpenModel
    draft: OpenModel | None
    limits: RequestLimits
    drafter_names: tuple[str, ...]
    vocabulary_map: VocabularyMap | None


@contextmanager
def open_model(resolved: ResolvedModel) -> Iterator[OpenModel]:
    """Maps the file into memory and builds its tokenizer; unmaps it at the end. Raises CheckpointError."""
    with GgufFile.open(resolved.path) as gguf:
        config = read_model_config(gguf)
        tokenizer = Tokenizer.from_gguf(gguf, tokenizer_cache_dir(os.environ))
        yield OpenModel(resolved.name, gguf, config, tokenizer, gguf.fingerprint())
