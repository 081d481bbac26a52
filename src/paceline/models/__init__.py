"""Models: the `Model` protocol, its implementations, and the architectures that GGUF files may have."""

from paceline.models.architectures import check_tensors, layer_tensors, model_tensors, read_model_config
from paceline.models.first_layers import FirstLayers, check_num_first_layers
from paceline.models.machine_limits import MachineLimits, MachineProbe
from paceline.models.native import NativeModel, ThreadPool, instruction_sets
from paceline.models.protocol import KvStore, Model
from paceline.models.slimming import Slimming

__all__ = [
    "FirstLayers",
    "KvStore",
    "MachineLimits",
    "MachineProbe",
    "Model",
    "NativeModel",
    "Slimming",
    "ThreadPool",
    "check_num_first_layers",
    "check_tensors",
    "instruction_sets",
    "layer_tensors",
    "model_tensors",
    "read_model_config",
]
