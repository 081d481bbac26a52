"""`AnswerFormat`: how one model writes reasoning and tool calls, and so how its answers are constrained and parsed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from msgspec import structs

from paceline.config import ServerConfig
from paceline.core import Constraint, Preface
from paceline.core.errors import InvalidRequestError
from paceline.gateway.generation_call import Chat
from paceline.gateway.parsing.answer_parser import AnswerParser
from paceline.gateway.parsing.formats.call_format import CallFormat
from paceline.gateway.parsing.formats.registry import detect_format, find_format
from paceline.gateway.parsing.reasoning import ReasoningFormat, ReasoningSplitter, detect_reasoning
from paceline.gateway.parsing.tools import Tool
from paceline.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The formats of a model's tool calls and of its reasoning; None where the model has none.

    With `shows_reasoning`, reasoning is a part of its own; without, it stays in the content.
    """

    calls: CallFormat | None
    reasoning: ReasoningFormat | None
    shows_reasoning: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: ServerConfig) -> AnswerFormat:
        """Returns the formats that the settings name, or else those that the model's chat template shows."""
        name = config.tool_format or detect_format(tokenizer.tool_template_source or "")
        return cls(
            calls=None if name is None else find_format(name),
            reasoning=detect_reasoning(tokenizer.chat_template_source or ""),
            shows_reasoning=config.reasoning_format == "auto",
        )

    def check(self, chat: Chat) -> None:
        """Raises InvalidRequestError for a chat with tools if the format of the model's calls is not known."""
        if chat.allowed_tools and self.calls is None:
            raise InvalidRequestError(
                "tools cannot be honoured: the model's chat template shows no known format of tool calls; use another "
                "model, or name the format with --tool-format",
                "tools",
                "unsupported_tools",
            )

    def is_reasoning_open(self, rendered: str) -> bool:
        """Returns whether a rendered chat ends within the reasoning of the answer."""
        return self.reasoning is not None and rendered.rstrip().endswith(self.reasoning.begin)

    def constraints(self, chat: Chat, form: Constraint | None, rendered: str) -> Iterator[Constraint]:
        """Yields constraints for the answer, to be tried in this order until one compiles; none if it has no form.

        `form` is the form of the content that the client asks for. If the model may call tools, the answer is a call or
        has that form. The second constraint, for tools that are not strict, allows any arguments.
        """
        preface = self._preface(rendered)
        if form is not None:
            form = structs.replace(form, preface=preface)
        tools = chat.allowed_tools
        if not tools or self.calls is None:
            yield from () if form is None else (form,)
            return
        candidates = [tools]
        if not any(tool.is_strict for tool in tools):
            candidates.append([replace(tool, parameters={"type": "object"}) for tool in tools])
        for candidate in candidates:
            yield self._call_constraint(chat, candidate, form, preface)

    def parser(self, chat: Chat, rendered: str) -> AnswerParser:
        """Returns a parser for one answer."""
        tools = chat.allowed_tools
        splitter = None
        if self.reasoning is not None and self.shows_reasoning:
            splitter = ReasoningSplitter(self.reasoning, is_open=self.is_reasoning_open(rendered))
        return AnswerParser(reasoning=splitter, calls=self.calls.parser(tools) if self.calls and tools else None)

    def _preface(self, rendered: str) -> Preface | None:
        if self.reasoning is None:
            return None
        is_open = self.is_reasoning_open(rendered)
        return Preface(begin=self.reasoning.begin, end=self.reasoning.end, is_open=is_open)

    def _call_constraint(
        self, chat: Chat, tools: list[Tool], form: Constraint | None, preface: Preface | None
    ) -> Constraint:
        assert self.calls is not None
        is_required = chat.tool_choice.is_required
        is_parallel = chat.tool_choice.is_parallel
        if form is None or is_required:
            source = self.calls.grammar(tools, is_required=is_required, is_parallel=is_parallel)
            return Constraint(kind="lark", source=source, preface=preface, field="tools")
        calls = self.calls.grammar(tools, is_required=True, is_parallel=is_parallel)
        forms = [{"kind": "lark", "source": calls}, {"kind": form.kind, "source": form.source}]
        return Constraint(kind="any_of", source=json.dumps(forms), preface=preface, field=form.field)
