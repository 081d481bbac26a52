"""Model files: the memory-mapped GGUF reader, dequantization, and the catalog from which models are pulled.

This package imports only `core`. Tokenizers and architectures read what they need from `GgufFile.metadata`.
"""

from paceline.checkpoint.author_sampling import author_sampling
from paceline.checkpoint.cache import InstalledModel, ModelCache, default_cache_dir, tokenizer_cache_dir
from paceline.checkpoint.catalog import CATALOG, DEFAULT_MODEL_NAME, CatalogEntry, HubSource, PackageSource
from paceline.checkpoint.dequantize import check_weight_types, dequantize
from paceline.checkpoint.ggml_type import GgmlType
from paceline.checkpoint.gguf import GgufFile, GgufTensor
from paceline.checkpoint.progress import ProgressListener, SilentProgress
from paceline.checkpoint.store import ModelStore, ResolvedModel, list_models, pull, remove_model, resolve_model

__all__ = [
    "CATALOG",
    "DEFAULT_MODEL_NAME",
    "CatalogEntry",
    "GgmlType",
    "GgufFile",
    "GgufTensor",
    "HubSource",
    "InstalledModel",
    "ModelCache",
    "ModelStore",
    "PackageSource",
    "ProgressListener",
    "ResolvedModel",
    "SilentProgress",
    "author_sampling",
    "check_weight_types",
    "default_cache_dir",
    "dequantize",
    "list_models",
    "pull",
    "remove_model",
    "resolve_model",
    "tokenizer_cache_dir",
]
