"""Backends: where models run. Each is a folder with its model and its sampler, behind the interface of `protocol`."""

from paceline.backends.protocol import BLOCK_SIZE, Backend, KvStore, LoadOptions, Model
from paceline.backends.registry import backend_names, find_backend

__all__ = ["BLOCK_SIZE", "Backend", "KvStore", "LoadOptions", "Model", "backend_names", "find_backend"]
