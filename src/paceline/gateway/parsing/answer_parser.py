"""`AnswerParser`: turns the text of an answer into reasoning, content and tool calls while the text arrives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paceline.gateway.parsing.events import CallArguments, CallBegin, Content, Part, merged
from paceline.gateway.parsing.formats.call_format import CallParser
from paceline.gateway.parsing.reasoning import ReasoningSplitter


class AnswerParser:
    """Splits off the reasoning, then finds the calls in the rest. Without both, all text is content.

    A parser reads one answer. Adjacent parts of one kind are joined within each returned list. Unless `is_parallel`,
    all calls but the first are dropped.
    """

    def __init__(
        self,
        *,
        reasoning: ReasoningSplitter | None = None,
        calls: CallParser | None = None,
        is_parallel: bool = True,
    ) -> None:
        self._reasoning = reasoning
        self._calls = calls
        self._is_parallel = is_parallel

    def push(self, text: str) -> list[Part]:
        """Reads more text and returns the parts that are now certain."""
        if self._reasoning is not None:
            return self._kept(self._with_calls(self._reasoning.push(text)))
        return self._kept(self._with_calls([Content(text)] if text else []))

    def finish(self) -> list[Part]:
        """Returns the last parts. The text has ended, perhaps within a call; `push` must not be used any more."""
        parts = [] if self._reasoning is None else list(self._with_calls(self._reasoning.finish()))
        if self._calls is not None:
            parts += self._calls.finish()
        return self._kept(parts)

    def _kept(self, parts: Iterable[Part]) -> list[Part]:
        if self._is_parallel:
            return merged(parts)
        return merged(part for part in parts if not isinstance(part, CallBegin | CallArguments) or part.index == 0)

    def _with_calls(self, parts: Iterable[Part]) -> Iterator[Part]:
        for part in parts:
            if self._calls is not None and isinstance(part, Content):
                yield from self._calls.push(part.text)
            else:
                yield part
