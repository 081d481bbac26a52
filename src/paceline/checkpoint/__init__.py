"""Model files: the memory-mapped GGUF reader, dequantization, and the catalog from which models are pulled.

Imports only `core`. Tokenizers and architectures read what they need from `GgufFile.metadata`.
"""

from paceline.checkpoint.dequantize import dequantize
from paceline.checkpoint.ggml_type import GgmlType
from paceline.checkpoint.gguf import GgufFile, GgufTensor

__all__ = ["GgmlType", "GgufFile", "GgufTensor", "dequantize"]
