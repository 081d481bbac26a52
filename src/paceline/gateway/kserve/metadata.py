"""What the protocol says about the server and its models."""

from __future__ import annotations

from typing import Any

import paceline
from paceline.gateway.errors import UnknownModelError
from paceline.gateway.kserve.generation import SAMPLING, TEXT_INPUT, TEXT_OUTPUT
from paceline.gateway.kserve.tensors import BYTES
from paceline.gateway.pool import Pool, ServedModel

MODEL_VERSION = "1"
PLATFORM = "paceline"
EXTENSIONS = ("binary_tensor_data", "generate")
INPUTS = (
    *((TEXT_INPUT, BYTES), ("stream", "BOOL"), (SAMPLING, BYTES), ("exclude_input_in_output", "BOOL")),
    *(("max_tokens", "INT32"), ("temperature", "FP32"), ("top_k", "INT32"), ("top_p", "FP32"), ("stop_words", BYTES)),
)
OUTPUTS = ((TEXT_OUTPUT, BYTES),)


def server_metadata() -> dict[str, Any]:
    """Returns the server's name, version and extensions."""
    return {"name": "paceline", "version": paceline.__version__, "extensions": list(EXTENSIONS)}


def model_metadata(pool: Pool, name: str, version: str | None) -> dict[str, Any]:
    """Returns the names and types of a model's tensors; raises UnknownModelError."""
    model = find_model(pool, name, version)
    tensors = {
        key: [{"name": tensor, "datatype": datatype, "shape": [1]} for tensor, datatype in found]
        for key, found in (("inputs", INPUTS), ("outputs", OUTPUTS))
    }
    return {"name": model.name, "versions": [MODEL_VERSION], "platform": PLATFORM, **tensors}


def find_model(pool: Pool, name: str, version: str | None) -> ServedModel:
    """Returns a served model; raises UnknownModelError for another name, or another version than 1."""
    model = pool.find_model(name)
    if version not in (None, "", MODEL_VERSION):
        raise UnknownModelError(f"{name}, version {version}", pool.default_model)
    return model


def is_model_ready(pool: Pool, name: str, version: str | None) -> bool:
    """Returns whether a replica of the model takes requests; raises UnknownModelError."""
    find_model(pool, name, version)
    return pool.is_model_ready(name)
