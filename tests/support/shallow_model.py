"""Draft models for targets without a smaller sibling: the target's own file with some layers left out.

Such a model agrees with the whole model about as often as a real draft model does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from paceline.architectures import read_model_config
from paceline.backends.native.model import NativeModel, ThreadPool
from paceline.checkpoint import GgufFile, GgufTensor
from paceline.engine.assembly import LoadedModel
from paceline.tokenizer import Tokenizer


def load_without_layers(path: Path, skipped: Collection[int]) -> LoadedModel:
    """Loads the model of a file without the `skipped` layers, which are counted from 0, on 2 threads."""
    with GgufFile.open(path) as gguf:
        config = read_model_config(gguf)
        kept = [layer for layer in range(config.num_layers) if layer not in skipped]
        shallow = replace(config, num_layers=len(kept), layers=tuple(config.layers[layer] for layer in kept))
        gguf.tensors = _renumber(gguf.tensors, kept)
        model = NativeModel(gguf, shallow, threads=ThreadPool(2))
        return LoadedModel("shallow", model, Tokenizer.from_gguf(gguf, None))


def _renumber(tensors: dict[str, GgufTensor], kept: list[int]) -> dict[str, GgufTensor]:
    renumbered = {name: tensor for name, tensor in tensors.items() if not name.startswith("blk.")}
    for new, old in enumerate(kept):
        prefix = f"blk.{old}."
        renumbered |= {
            f"blk.{new}.{name.removeprefix(prefix)}": tensor
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }
    return renumbered
