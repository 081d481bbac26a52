"""`CallPreparer`: turns a call into what an engine needs, and into parsers for the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from paceline.config import ServerConfig
from paceline.constraints.compile_check import CompileCheck
from paceline.core import Constraint
from paceline.core.errors import InvalidRequestError
from paceline.core.messages import ModelInfo
from paceline.gateway.engines.answer_format import AnswerFormat
from paceline.gateway.engines.prompt_encoder import PromptEncoder
from paceline.gateway.generation_call import Chat, GenerationCall, Infill
from paceline.gateway.parsing.answer_parser import AnswerParser

_SMALL_BODY_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """The token ids of each prompt, and the constraint on all answers (None: there is none).

    `echoed` are the texts of the prompts, if answers begin with them. `new_parser` makes the parser of one answer to a
    chat; None means that answers are plain text.
    """

    prompts: Sequence[list[int]]
    constraint: Constraint | None = None
    echoed: Sequence[str] | None = None
    new_parser: Callable[[], AnswerParser] | None = None


class CallPreparer:
    """Renders and tokenizes prompts, and finds a constraint that compiles. `close` must follow."""

    def __init__(self, encoder: PromptEncoder, config: ServerConfig) -> None:
        self.encoder = encoder
        self._config = config
        self._check = CompileCheck()
        self._format: AnswerFormat | None = None

    async def prepare(self, call: GenerationCall, model: ModelInfo) -> PreparedCall:
        """Raises InvalidRequestError for a call that this model cannot honour."""
        if isinstance(call.input, Chat):
            return await self._prepare_chat(call, call.input, model)
        constraint = await self._first_compiling([call.constraint] if call.constraint else [], call)
        if isinstance(call.input, Infill):
            prompt = await self.encoder.encode_infill(call.input, model, call.size_bytes)
            echoed = [call.input.prefix] if call.echo else None
            return PreparedCall(prompts=[prompt], constraint=constraint, echoed=echoed)
        prompts = await self.encoder.encode_prompts(call.input, model, call.size_bytes)
        echoed = await self.encoder.texts_of(call.input, call.size_bytes) if call.echo else None
        return PreparedCall(prompts=prompts, constraint=constraint, echoed=echoed)

    def close(self) -> None:
        """Ends the process that tries constraints out."""
        self._check.close()

    async def _prepare_chat(self, call: GenerationCall, chat: Chat, model: ModelInfo) -> PreparedCall:
        answer_format = await self._answer_format()
        answer_format.check(chat)
        rendered = await self.encoder.encode_chat(chat, model, call.size_bytes)
        constraints = answer_format.constraints(chat, call.constraint, rendered.text)
        if call.size_bytes > _SMALL_BODY_BYTES:
            constraints = iter(await asyncio.to_thread(list, constraints))
        return PreparedCall(
            prompts=[rendered.token_ids],
            constraint=await self._first_compiling(constraints, call),
            new_parser=partial(answer_format.parser, chat, call.constraint, rendered.text),
        )

    async def _answer_format(self) -> AnswerFormat:
        if self._format is None:
            self._format = AnswerFormat.of(await self.encoder.tokenizer(), self._config)
        return self._format

    async def _first_compiling(self, constraints: Iterable[Constraint], call: GenerationCall) -> Constraint | None:
        """Returns the first constraint that compiles, as a grammar; None if there is none. Raises the first one's error
        if all of them fail."""
        errors: list[InvalidRequestError] = []
        for constraint in constraints:
            try:
                return await self._check.check(constraint, call.principal.tenant)
            except InvalidRequestError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return None
