"""`PromptEncoder`: turns chats and texts into token ids with a model's own tokenizer and chat template."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from paceline.core.errors import InvalidRequestError
from paceline.core.messages import ModelInfo
from paceline.gateway.engines.model_card import LoadedModel, ModelCard
from paceline.gateway.generation_call import Chat, Infill
from paceline.gateway.parsing.tools import Tool
from paceline.machine.cores import num_usable_cores
from paceline.sampling.parameters import check_token_ids
from paceline.sampling.request_check import check_room, overflow
from paceline.tokenizer import MAX_TEMPLATE_PROCESSES, Tokenizer

_SMALL_BODY_BYTES = 4096

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A chat as the model's template writes it, as text and as token ids."""

    text: str
    token_ids: list[int]


class PromptEncoder:
    """Encodes the prompts of calls.

    Prompts of larger calls are encoded in threads, one for each core, so that the event loop is not blocked and memory
    is bounded. `size_bytes` is always the size of the whole call. Chats are rendered in separate threads, which wait
    for the template processes, so a slow template never blocks an encoding thread.
    """

    def __init__(self, model: asyncio.Future[LoadedModel]) -> None:
        self._model = model
        self._threads = ThreadPoolExecutor(num_usable_cores(), thread_name_prefix="encode")
        self._rendering_threads = ThreadPoolExecutor(MAX_TEMPLATE_PROCESSES, thread_name_prefix="render")

    @property
    def is_ready(self) -> bool:
        """Whether the tokenizer is loaded."""
        return self._model.done() and not self._model.cancelled()

    async def tokenizer(self) -> Tokenizer:
        """Returns the tokenizer as soon as it is loaded."""
        return (await asyncio.shield(self._model)).tokenizer

    @property
    def card(self) -> ModelCard | None:
        """The facts about the model; None until its file was read."""
        is_read = self._model.done() and not self._model.cancelled() and self._model.exception() is None
        return self._model.result().card if is_read else None

    async def encode_chat(self, chat: Chat, model: ModelInfo, size_bytes: int) -> RenderedChat:
        """Returns the rendered chat with its token ids.

        Raises InvalidRequestError if the template refuses the chat, or `check_prompt` the token ids.
        """
        tokenizer = await self.tokenizer()
        text = await self._rendered(tokenizer, chat)
        return RenderedChat(text, await self._run(partial(_encode_rendered, tokenizer, text, model), size_bytes))

    async def count_tokens(self, chat: Chat, size_bytes: int) -> int:
        """Returns the number of tokens in a chat's prompt, however long it is. Raises InvalidRequestError if the
        template refuses the chat."""
        tokenizer = await self.tokenizer()
        text = await self._rendered(tokenizer, chat)
        return len(await self._run(partial(tokenizer.encode_rendered, text), size_bytes))

    async def encode_prompts(
        self, prompts: Sequence[str | list[int]], model: ModelInfo, size_bytes: int
    ) -> list[list[int]]:
        """Returns the token ids of each prompt; lists of token ids stay as they are.

        Texts begin with the beginning-of-sequence token if the model wants one. Raises InvalidRequestError for the
        first prompt that `check_prompt` refuses.
        """
        tokenizer = await self.tokenizer()
        return [await self._run(partial(_encode_prompt, tokenizer, one, model), size_bytes) for one in prompts]

    async def encode_infill(self, infill: Infill, model: ModelInfo, size_bytes: int) -> list[int]:
        """Returns the token ids of the prompt for a text between two others.

        Raises InvalidRequestError if the model cannot fill in text, or if `check_prompt` refuses the token ids.
        """
        tokenizer = await self.tokenizer()
        return await self._run(partial(_encode_infill, tokenizer, infill, model), size_bytes)

    async def texts_of(self, prompts: Sequence[str | list[int]], size_bytes: int) -> list[str]:
        """Returns the prompts as text."""
        tokenizer = await self.tokenizer()
        return [
            one if isinstance(one, str) else await self._run(partial(tokenizer.decode, one), size_bytes)
            for one in prompts
        ]

    async def _rendered(self, tokenizer: Tokenizer, chat: Chat) -> str:
        render = partial(_render_chat, tokenizer, chat)
        return await asyncio.get_running_loop().run_in_executor(self._rendering_threads, render)

    async def _run(self, work: Callable[[], Result], size_bytes: int) -> Result:
        if size_bytes <= _SMALL_BODY_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def check_num_messages(num_messages: int, model: ModelInfo) -> None:
    """Raises ContextOverflowError if there are more messages than tokens in the context window."""
    if num_messages > model.context_window_size:
        raise overflow(f"the chat has {num_messages} messages", model.context_window_size, "messages")


def check_prompt(token_ids: list[int], model: ModelInfo, param: str) -> None:
    """Raises InvalidRequestError for an empty prompt, an unknown token id, or no room left for another token."""
    if not token_ids:
        raise InvalidRequestError(f"{param} has no tokens: send some text", param, "empty_prompt")
    check_room(len(token_ids), model.context_window_size, param=param)
    check_token_ids(token_ids, param, model.vocab_size)


def _render_chat(tokenizer: Tokenizer, chat: Chat) -> str:
    tools = [_template_tool(tool) for tool in chat.allowed_tools]
    return tokenizer.render_chat(chat.messages, tools or None, **chat.template_options)


def _template_tool(tool: Tool) -> dict[str, object]:
    """Returns the tool in OpenAI's form, for which templates are written."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _encode_rendered(tokenizer: Tokenizer, text: str, model: ModelInfo) -> list[int]:
    _check_text(tokenizer, text, model, "messages")
    token_ids = tokenizer.encode_rendered(text)
    check_prompt(token_ids, model, "messages")
    return token_ids


def _encode_prompt(tokenizer: Tokenizer, prompt: str | list[int], model: ModelInfo) -> list[int]:
    if isinstance(prompt, str):
        _check_text(tokenizer, prompt, model, "prompt")
        prompt = tokenizer.encode_prompt(prompt)
    check_prompt(prompt, model, "prompt")
    return prompt


def _encode_infill(tokenizer: Tokenizer, infill: Infill, model: ModelInfo) -> list[int]:
    texts = "".join((infill.prefix, infill.suffix, infill.begun, *(text for file in infill.files for text in file)))
    _check_text(tokenizer, texts, model, "prompt")
    if tokenizer.infill is None:
        message = "suffix cannot be honoured: the model's vocabulary has no tokens for filling in text"
        raise InvalidRequestError(message, "suffix", "unsupported_value")
    gap = tokenizer.infill.prompt(tokenizer.encode_within, infill.prefix, infill.suffix, infill.files)
    token_ids = [*tokenizer.leading_token_ids, *gap, *tokenizer.encode_within(infill.begun)]
    check_prompt(token_ids, model, "prompt")
    return token_ids


def _check_text(tokenizer: Tokenizer, text: str, model: ModelInfo, param: str) -> None:
    """Raises ContextOverflowError for a text that is certainly too long, without encoding all of it."""
    least = tokenizer.least_num_tokens(text, model.context_window_size - 1)
    if least + 1 > model.context_window_size:
        raise overflow(f"the prompt has at least {least} tokens", model.context_window_size, param)
