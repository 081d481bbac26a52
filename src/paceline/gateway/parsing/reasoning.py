"""Separates the reasoning at the beginning of an answer from the rest."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.gateway.parsing.events import Content, Reasoning
from paceline.gateway.parsing.text_reader import WHITE_SPACE, Reading, TextReader


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """The markers around a model's reasoning."""

    begin: str
    end: str


_FORMATS = (ReasoningFormat("<think>", "</think>"), ReasoningFormat("[THINK]", "[/THINK]"))


def detect_reasoning(template_source: str) -> ReasoningFormat | None:
    """Returns the format whose end marker the chat template mentions; None for a model that does not reason.

    Some templates mention only the end marker, because they cut reasoning out of earlier answers there.
    """
    return next((one for one in _FORMATS if one.end in template_source), None)


class ReasoningSplitter(TextReader):
    """Gives out the reasoning as `Reasoning`, and everything after it, unparsed, as `Content`.

    Reasoning stands only at the beginning of an answer, after white space at most; a begin marker further down is
    content. `is_open` says that the prompt ended with the begin marker (the model may still repeat it). Line breaks
    at both ends of the reasoning and white space after the end marker are dropped. If the text ends within the
    reasoning, all of it is reasoning.
    """

    def __init__(self, markers: ReasoningFormat, *, is_open: bool) -> None:
        super().__init__()
        self._markers = markers
        self._is_open = is_open
        self._line_breaks = ""
        self._has_begun = False

    def _run(self) -> Reading[None]:
        yield from self._peek()
        if (yield from self._one_of((self._markers.begin,))) is not None:
            self._held.clear()
            self._is_open = True
        if self._is_open:
            self._reason_held()
            yield from self._until((self._markers.end,), self._reason)
            self._is_open = False
            self._held.clear()
            while (yield from self._next()) in WHITE_SPACE:
                self._held.clear()
        self._give_held()
        while True:
            if rest := self._plain_text(()):
                self._parts.append(Content(rest))
            yield

    def _end(self) -> None:
        if self._is_open:
            self._reason_held()
        else:
            self._give_held()

    def _give_held(self) -> None:
        self._parts += map(Content, self._held)
        self._held.clear()

    def _reason_held(self) -> None:
        self._reason("".join(self._held))
        self._held.clear()

    def _reason(self, text: str) -> None:
        """Gives out a piece of the reasoning. Line breaks at its end wait until more reasoning follows."""
        text = self._line_breaks + text if self._has_begun else text.lstrip("\n")
        known = text.rstrip("\n")
        self._line_breaks = text[len(known) :]
        if known:
            self._parts.append(Reasoning(known))
            self._has_begun = True
