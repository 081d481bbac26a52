"""The routes that list and describe models: /api/tags, /api/ps and /api/show."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from paceline.gateway.http.arrival import Arrival
from paceline.gateway.http.context import Gateway
from paceline.gateway.http.json_response import JsonResponse
from paceline.gateway.ollama.schema import ShowRequest
from paceline.gateway.pool import ServedModel

_SIZES = ((10**9, "B"), (10**6, "M"), (10**3, "K"))
_FOREVER = "9999-12-31T23:59:59Z"  # the model is never unloaded


def list_models(gateway: Gateway) -> dict[str, Any]:
    """Returns all served models."""
    return {"models": [_entry(model) for model in gateway.service.pool.models()]}


def list_running(gateway: Gateway) -> dict[str, Any]:
    """Returns the models that an engine has loaded."""
    loaded = [model for model in gateway.service.pool.models() if model.context_window_size is not None]
    more = {"expires_at": _FOREVER, "size_vram": 0}
    return {"models": [{**_entry(model), **more, "context_length": model.context_window_size} for model in loaded]}


async def show(gateway: Gateway, body: ShowRequest, arrival: Arrival) -> Response:
    """Describes a model; raises UnknownModelError."""
    model = gateway.service.pool.find_model(body.model_name)
    card = model.card
    capabilities = ["completion"]
    capabilities += ["tools"] if card is not None and card.has_tools else []
    capabilities += ["insert"] if card is not None and card.has_infill else []
    return JsonResponse(
        {
            "modelfile": f"FROM {model.name}\n",
            "parameters": "" if card is None else "\n".join(f"{key} {value}" for key, value in card.sampling.items()),
            "template": "" if card is None else card.chat_template,
            "details": _details(model),
            "model_info": {} if card is None else _model_info(model),
            "capabilities": capabilities,
            "modified_at": _modified_at(model),
        }
    )


def _entry(model: ServedModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": _modified_at(model),
        "size": 0 if model.card is None else model.card.size_bytes,
        "digest": "" if model.card is None else model.card.fingerprint,
        "details": _details(model),
    }


def _details(model: ServedModel) -> dict[str, Any]:
    card = model.card
    family = "" if card is None else card.architecture
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": "" if card is None else _size(card.num_parameters),
        "quantization_level": "" if card is None else card.quantization,
    }


def _model_info(model: ServedModel) -> dict[str, Any]:
    card = model.card
    assert card is not None
    return {
        "general.architecture": card.architecture,
        "general.parameter_count": card.num_parameters,
        f"{card.architecture}.context_length": model.context_window_size or card.max_context_size,
    }


def _modified_at(model: ServedModel) -> str:
    modified_s = 0.0 if model.card is None else model.card.modified_s
    return datetime.fromtimestamp(modified_s, UTC).isoformat()


def _size(num_parameters: int) -> str:
    """Returns a number of parameters as Ollama writes it, such as 1.5B."""
    for unit, name in _SIZES:
        if num_parameters >= unit:
            return f"{num_parameters / unit:.1f}{name}"
    return str(num_parameters)
