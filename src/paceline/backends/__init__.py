"""Backends: where models run. Each is a folder with its model and its sampler, behind the interface of `protocol`."""

from paceline.backends.protocol import KvStore, Model

__all__ = ["KvStore", "Model"]
