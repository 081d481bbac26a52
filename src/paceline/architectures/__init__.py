"""Architectures: which options of the shared decoder a GGUF file asks for, and which tensors it must have."""

from paceline.architectures.config_reader import read_model_config
from paceline.architectures.families import ARCHITECTURES, Architecture
from paceline.architectures.tensors import ExpectedTensor, check_tensors, layer_tensors, model_tensors

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "ExpectedTensor",
    "check_tensors",
    "layer_tensors",
    "model_tensors",
    "read_model_config",
]
