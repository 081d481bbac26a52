"""`CallFormat`: what a format of tool calls must provide, and `CallParser`, the interface of its parser."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

from paceline.gateway.parsing.events import Part
from paceline.gateway.parsing.tools import Tool


class CallParser(Protocol):
    """Finds the tool calls in the text of one answer while the text arrives."""

    def push(self, text: str) -> list[Part]:
        """Reads more text and returns the parts that are now certain."""

    def finish(self) -> list[Part]:
        """Returns the last parts. The text has ended, perhaps within a call."""


class CallFormat(ABC):
    """One way to write tool calls."""

    name: ClassVar[str]

    @abstractmethod
    def is_format_of(self, template: str) -> bool:
        """Returns whether a model with this chat template writes calls in this format."""

    @abstractmethod
    def parser(self, tools: Sequence[Tool], *, needs_markers: bool = False) -> CallParser:
        """Returns a parser for one answer. Only calls of these tools are calls; everything else is content.

        With `needs_markers`, JSON without the markers of a call is content too, unless the format has no markers.
        """

    @abstractmethod
    def grammar(self, tools: Sequence[Tool], *, is_required: bool, is_parallel: bool) -> str:
        """Returns a grammar for whole answers, in llguidance's Lark dialect; `tools` must not be empty.

        With `is_required`, the answer is one call, or several if `is_parallel`, and nothing else. Otherwise it is free
        text that may go over into calls. After the first marker, the call must be valid, and nothing but further
        calls may follow it.
        """
