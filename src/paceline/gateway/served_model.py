"""`ServedModel`: the gateway's side of the model that is served: its names, its tokenizer and its limits.

No weights are loaded here: the tokenizer comes from the file's metadata, and the mapping is closed again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.checkpoint import GgufFile, tokenizer_cache_dir
from paceline.core.errors import ContextOverflowError, InvalidRequestError
from paceline.core.messages import ModelInfo
from paceline.gateway.errors import model_not_found
from paceline.tokenizer import Tokenizer

DEFAULT_NAME = "default"
_LONG_PROMPT_CHARACTERS = 4096


class ServedModel:
    """The model that clients may name by its served name, its own name or `default`."""

    def __init__(self, served_name: str, own_name: str, tokenizer: asyncio.Future[Tokenizer]) -> None:
        self.name = served_name
        self._names = frozenset({served_name, own_name, DEFAULT_NAME})
        self._tokenizer = tokenizer

    @property
    def is_ready(self) -> bool:
        """Whether the tokenizer is loaded."""
        return self._tokenizer.done() and not self._tokenizer.cancelled()

    def check_name(self, name: str | None) -> None:
        """Raises ApiError 404 where a request means another model; None means this one."""
        if name is not None and name not in self._names:
            raise model_not_found(name, self.name)

    async def tokenizer(self) -> Tokenizer:
        """The tokenizer, once it is loaded."""
        return await asyncio.shield(self._tokenizer)

    async def encode_chat(self, messages: list[dict[str, str]], options: Mapping[str, Any]) -> list[int]:
        """Token ids of the rendered chat template; `options` are variables of the template."""
        tokenizer = await self.tokenizer()
        num_characters = sum(len(message["content"]) for message in messages)
        if num_characters < _LONG_PROMPT_CHARACTERS:
            return tokenizer.encode_chat(messages, **options)
        return await asyncio.to_thread(tokenizer.encode_chat, messages, **options)

    async def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a text, with the model's beginning-of-sequence token where it wants one."""
        tokenizer = await self.tokenizer()
        if len(text) < _LONG_PROMPT_CHARACTERS:
            return tokenizer.encode_prompt(text)
        return await asyncio.to_thread(tokenizer.encode_prompt, text)


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a model file, ready to encode; reads no weights."""
    with GgufFile.open(path) as gguf:
        tokenizer = Tokenizer.from_gguf(gguf, tokenizer_cache_dir(os.environ))
    tokenizer.prepare()
    return tokenizer


def check_prompt(token_ids: list[int], model: ModelInfo, param: str) -> None:
    """Raises InvalidRequestError for an empty prompt, an unknown token id, or no room for one more token."""
    if not token_ids:
        raise InvalidRequestError(f"{param} has no tokens: send some text", param, "empty_prompt")
    if max(token_ids) >= model.vocab_size:
        message = f"{param} has token id {max(token_ids)}, but the vocabulary ends at {model.vocab_size - 1}"
        raise InvalidRequestError(message, param, "invalid_value")
    if len(token_ids) + 1 > model.context_window_size:
        message = (
            f"{param} has {len(token_ids)} tokens, which leaves no room for an answer in the context window of "
            f"{model.context_window_size} tokens: shorten it"
        )
        raise ContextOverflowError(message, param, "context_length_exceeded")
