"""`AnswerFormat`: how one model writes reasoning and tool calls, and so how its answers are constrained and parsed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import structs

from paceline.config import ServerConfig
from paceline.constraints.grammars import MAX_SOURCE_CHARACTERS
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
        """Raises InvalidRequestError for a chat with tools if the format of the model's calls is not known, or if the
        tools are too large."""
        if not chat.allowed_tools:
            return
        if self.calls is None:
            raise _refusal(
                chat,
                "the model's chat template shows no known format of tool calls; use another model, or name the format "
                "with --tool-format",
            )
        if sum(len(json.dumps(tool.parameters)) for tool in chat.allowed_tools) > MAX_SOURCE_CHARACTERS:
            raise _refusal(chat, f"the parameters have more than {MAX_SOURCE_CHARACTERS} characters")

    def is_reasoning_open(self, rendered: str) -> bool:
        """Returns whether a rendered chat ends within the reasoning of the answer."""
        return self.reasoning is not None and rendered.rstrip().endswith(self.reasoning.begin)

    def constraints(self, chat: Chat, form: Constraint | None, rendered: str) -> Iterator[Constraint]:
        """Yields constraints for the answer, to be tried in this order until one compiles; none if it has no form.

        `form` is the form of the content that the client asks for. If the model may call tools, the answer is a call or
        has that form. The second constraint allows any arguments for tools that are not strict. Raises
        InvalidRequestError for tools of which no grammar can be written.
        """
        preface = self._preface(rendered)
        if form is not None:
            form = structs.replace(form, preface=preface)
        tools = chat.allowed_tools
        if not tools or self.calls is None:
            yield from () if form is None else (form,)
            return
        yield self._call_constraint(chat, tools, form, preface)
        if not all(tool.is_strict for tool in tools):
            yield self._call_constraint(chat, [tool.with_any_arguments() for tool in tools], form, preface)

    def parser(self, chat: Chat, form: Constraint | None, rendered: str) -> AnswerParser:
        """Returns a parser for one answer. Beside a form, JSON without the markers of a call is no call."""
        tools = chat.allowed_tools
        splitter = None
        if self.reasoning is not None and self.shows_reasoning:
            splitter = ReasoningSplitter(self.reasoning, is_open=self.is_reasoning_open(rendered))
        calls = self.calls.parser(tools, needs_markers=form is not None) if self.calls and tools else None
        return AnswerParser(reasoning=splitter, calls=calls, is_parallel=chat.tool_choice.is_parallel)

    def _preface(self, rendered: str) -> Preface | None:
        if self.reasoning is None or rendered.rstrip().endswith(self.reasoning.end):
            return None  # the model does not reason, or the template says that it has already reasoned
        is_open = self.is_reasoning_open(rendered)
        return Preface(begin=self.reasoning.begin, end=self.reasoning.end, is_open=is_open)

    def _call_constraint(
        self, chat: Chat, tools: list[Tool], form: Constraint | None, preface: Preface | None
    ) -> Constraint:
        """Raises InvalidRequestError if no grammar can be written for these tools."""
        is_required = chat.tool_choice.is_required
        if form is None or is_required:
            source = self._grammar(chat, tools, is_required=is_required)
            return Constraint(kind="lark", source=source, preface=preface, field=chat.tools_field)
        source = self._grammar(chat, tools, is_required=True)
        forms = [{"kind": "lark", "source": source}, {"kind": form.kind, "source": form.source}]
        field = f"{chat.tools_field} or {form.field}"
        return Constraint(kind="any_of", source=json.dumps(forms), preface=preface, field=field)

    def _grammar(self, chat: Chat, tools: list[Tool], *, is_required: bool) -> str:
        assert self.calls is not None
        try:
            return self.calls.grammar(tools, is_required=is_required, is_parallel=chat.tool_choice.is_parallel)
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise _refusal(chat, "the parameters of a tool are not a valid json schema") from error


def _refusal(chat: Chat, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{chat.tools_field} cannot be honoured: {reason}", chat.tools_field, "unsupported_tools"
    )
