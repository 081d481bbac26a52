"""Model files that are open but not loaded: what the settings and the files together cannot be is refused here, before
minutes go into weights.

`loading` resolves names to files before and loads weights after.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from paceline.architectures import read_model_config
from paceline.checkpoint import GgufFile, ResolvedModel, tokenizer_cache_dir
from paceline.config import DrafterName
from paceline.core import ModelConfig
from paceline.core.errors import VocabularyMismatchError
from paceline.drafters.draft_model.vocabulary_map import VocabularyMap
from paceline.sampling import RequestLimits
from paceline.tokenizer import Tokenizer

_logger = logging.getLogger(__name__)


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
    drafter_names: tuple[DrafterName, ...]
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


def map_vocabularies(draft: OpenModel, target: OpenModel) -> VocabularyMap | None:
    """How the draft model's tokens relate to the target's; None where they are the same.

    Raises VocabularyMismatchError where they have too little in common for drafts to be of use.
    """
    if draft.tokenizer.vocabulary_hash == target.tokenizer.vocabulary_hash:
        return None
    vocabularies = VocabularyMap(target.tokenizer, draft.tokenizer)
    of_target, of_draft = vocabularies.target_overlap, vocabularies.draft_overlap
    if not vocabularies.is_useful:
        raise VocabularyMismatchError(
            f"draft model {draft.name} has another vocabulary than {target.name}, and too little of it in common: "
            f"{of_target.num_shared} of the target's {of_target.num_tokens} most frequent tokens of several bytes and "
            f"{of_draft.num_shared} of the draft's {of_draft.num_tokens}, where half of both are needed; choose a "
            "draft model of the same family, or --drafters suffix"
        )
    draft.tokenizer.prepare()
    shares = (100 * of_target.share, 100 * of_draft.share)
    _logger.info(
        "%s drafts by another vocabulary: it has %.0f %% of the target's frequent tokens, the target %.0f %% of "
        "its own",
        draft.name,
        *shares,
    )
    return vocabularies
