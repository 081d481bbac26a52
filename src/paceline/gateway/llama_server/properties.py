"""The routes that describe the server and its model: /props, /slots, /tokenize and /detokenize."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

import paceline
from paceline.core.errors import InvalidRequestError
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.http.context import Gateway
from paceline.gateway.http.json_response import JsonResponse
from paceline.gateway.llama_server.schema import DetokenizeRequest, TokenizeRequest
from paceline.tokenizer import Tokenizer


def props(gateway: Gateway) -> dict[str, Any]:
    """Returns the properties of the default model."""
    pool = gateway.service.pool
    model = pool.find_model(pool.default_model)
    return {
        "default_generation_settings": {
            "n_ctx": model.context_window_size,
            "params": {} if model.card is None else dict(model.card.sampling),
        },
        "total_slots": pool.num_slots,
        "model_alias": model.name,
        "chat_template": "" if model.card is None else model.card.chat_template,
        "modalities": {"vision": False, "audio": False},
        "build_info": f"paceline {paceline.__version__}",
    }


def slots(gateway: Gateway) -> list[dict[str, Any]]:
    """Returns which places for sequences are in use. No text of any request is shown."""
    pool = gateway.service.pool
    size = pool.find_model(pool.default_model).context_window_size
    return [
        {"id": index, "n_ctx": size, "is_processing": index < pool.num_outstanding} for index in range(pool.num_slots)
    ]


async def tokenize(gateway: Gateway, body: TokenizeRequest, arrival: Arrival) -> Response:
    """Returns the token ids of a text, with the spelling of each if the client asks for it."""
    tokenizer = await gateway.service.tokenizer(None)
    return await asyncio.to_thread(_tokenized, tokenizer, body)


async def detokenize(gateway: Gateway, body: DetokenizeRequest, arrival: Arrival) -> Response:
    """Returns the text of token ids, with the spelling of special tokens."""
    tokenizer = await gateway.service.tokenizer(None)
    return await asyncio.to_thread(_detokenized, tokenizer, body)


def _tokenized(tokenizer: Tokenizer, body: TokenizeRequest) -> Response:
    token_ids = tokenizer.encode(body.content, parse_special=body.parse_special)
    if body.add_special:
        token_ids = [*tokenizer.leading_token_ids, *token_ids]
    if not body.with_pieces:
        return JsonResponse({"tokens": token_ids})
    return JsonResponse({"tokens": [{"id": one, "piece": _piece(tokenizer.token_bytes(one))} for one in token_ids]})


def _detokenized(tokenizer: Tokenizer, body: DetokenizeRequest) -> Response:
    if any(one >= tokenizer.vocab_size for one in body.tokens):
        message = f"tokens has an id that is not below the vocabulary's size, {tokenizer.vocab_size}"
        raise InvalidRequestError(message, "tokens", "invalid_value")
    return JsonResponse({"content": b"".join(map(tokenizer.token_bytes, body.tokens)).decode(errors="replace")})


def _piece(token: bytes) -> str | list[int]:
    """Returns the token's text, or its bytes if they are no text of their own, as llama-server does."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return list(token)
