"""`ModelCard`: what clients can learn about a served model, and `load_model`, which reads it from the model file."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from paceline.checkpoint import GgufFile, ResolvedModel, author_sampling, tokenizer_cache_dir
from paceline.sampling import RANGES
from paceline.tokenizer import Tokenizer

_FILE_TYPES = MappingProxyType(
    {
        0: "F32",
        1: "F16",
        2: "Q4_0",
        3: "Q4_1",
        7: "Q8_0",
        8: "Q5_0",
        9: "Q5_1",
        10: "Q2_K",
        11: "Q3_K_S",
        12: "Q3_K_M",
        13: "Q3_K_L",
        14: "Q4_K_S",
        15: "Q4_K_M",
        16: "Q5_K_S",
        17: "Q5_K_M",
        18: "Q6_K",
        32: "BF16",
    }
)
"""The names of `general.file_type` in the GGUF specification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """The facts of a model file. `sampling` are the sampling parameters that requests get unless they set their own.

    `fingerprint` changes with the contents of the file. `modified_s` is the time of the file in Unix time.
    `chat_template` is empty for a model without one.
    """

    fingerprint: str
    architecture: str
    num_parameters: int
    quantization: str
    size_bytes: int
    modified_s: float
    sampling: Mapping[str, float]
    chat_template: str
    has_tools: bool
    has_infill: bool
    max_context_size: int


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What the gateway keeps of a model file. It has no weights."""

    tokenizer: Tokenizer
    card: ModelCard


def load_model(resolved: ResolvedModel, *, has_author_sampling: bool) -> LoadedModel:
    """Returns the tokenizer of a model file, ready to encode and to render chats, and the model's card.

    It reads no weights. Without `has_author_sampling`, the card has no sampling parameters. Raises CheckpointError.
    """
    with GgufFile.open(resolved.path) as gguf:
        tokenizer = Tokenizer.from_gguf(gguf, tokenizer_cache_dir(os.environ))
        card = _card(resolved, gguf, tokenizer, has_author_sampling=has_author_sampling)
    tokenizer.prepare_chats()
    tokenizer.prepare()
    return LoadedModel(tokenizer, card)


def _card(resolved: ResolvedModel, gguf: GgufFile, tokenizer: Tokenizer, *, has_author_sampling: bool) -> ModelCard:
    status = resolved.path.stat()
    architecture = str(gguf.metadata.get("general.architecture", ""))
    context_size = gguf.metadata.get(f"{architecture}.context_length", 0)
    file_type = gguf.metadata.get("general.file_type")
    return ModelCard(
        fingerprint=gguf.fingerprint(),
        architecture=architecture,
        num_parameters=sum(math.prod(tensor.shape) for tensor in gguf.tensors.values()),
        quantization=_FILE_TYPES.get(file_type, "unknown") if isinstance(file_type, int) else "unknown",
        size_bytes=sum(path.stat().st_size for path in gguf.paths),
        modified_s=status.st_mtime,
        sampling=_sampling(gguf, resolved) if has_author_sampling else {},
        chat_template=tokenizer.chat_template_source or "",
        has_tools="tools" in (tokenizer.tool_template_source or ""),
        has_infill=tokenizer.infill is not None,
        max_context_size=context_size if isinstance(context_size, int) else 0,
    )


def _sampling(gguf: GgufFile, resolved: ResolvedModel) -> dict[str, float]:
    """Returns what the author recommends. A file may hold any numbers; those out of range are left out, such as a top_k
    of 0, which means all tokens."""
    recommended = author_sampling(gguf.metadata, resolved.sampling)
    return {name: value for name, value in recommended.items() if value in RANGES[name]}
