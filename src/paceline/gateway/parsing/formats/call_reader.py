"""`CallReader`: the base of the parsers of tool calls. It decides what is content and what belongs to a call.

A text that looks like a call is held until it names a known tool. If it turns out to be no call, all of it is content.
From the name on it is a call, even if the text ends early or is not valid further on.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.gateway.parsing.events import CallArguments, CallBegin, Content
from paceline.gateway.parsing.text_reader import WHITE_SPACE, Reading, TextReader
from paceline.gateway.parsing.tools import Tool


class NotACallError(Exception):
    """The last character that was read does not fit a call."""


class CallReader(TextReader):
    """Reads content and calls. White space directly after a call, or alone before the first one, is not content."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__()
        self._tools = {tool.name: tool for tool in tools}
        self._num_calls = 0
        self._is_amid_content = False
        self._is_in_call = False

    def _end(self) -> None:
        """Gives out what may have become a call as content; drops an unfinished end of a call."""
        if not self._is_in_call:
            self._give_content(len(self._held))

    def _content_until(self, markers: Sequence[str]) -> Reading[str]:
        """Gives out content up to the first marker and returns the marker, which stays held."""
        pending = ""
        num_blank = 0  # this many held characters are known to be white space
        while pending not in markers:
            if self._is_amid_content and not pending and (plain := self._plain_text(markers)):
                self._parts.append(Content(plain))
            pending += yield from self._next()
            while not any(marker.startswith(pending) for marker in markers):
                pending = pending[1:]
            settled = len(self._held) - len(pending)
            if self._is_amid_content or any(one not in WHITE_SPACE for one in self._held[num_blank:settled]):
                self._give_content(settled)
                num_blank = 0
            else:
                num_blank = max(num_blank, settled)
        return pending

    def _attempt(self, call: Reading[None]) -> Reading[None]:
        """Reads a call. If the text is no call, gives it out as content, up to the character that does not fit."""
        try:
            yield from call
        except NotACallError:
            self._unread("".join(self._held[-1:]))
            self._give_content(len(self._held))
        self._is_in_call = False
        self._held.clear()

    def _expect(self, text: str) -> Reading[None]:
        for expected in text:
            if (yield from self._next()) != expected:
                raise NotACallError

    def _known_name(self, ends: str) -> Reading[str]:
        """Reads a tool's name and the character after it, one of `ends`, which it puts back."""
        name = ""
        while True:
            character = yield from self._next()
            if character in ends and name in self._tools:
                self._unread(character)
                return name
            name += character
            if not any(known.startswith(name) for known in self._tools):
                raise NotACallError

    def _begin_call(self, name: str) -> None:
        """Gives out the beginning of a call; raises NotACallError if there is no such tool."""
        if name not in self._tools:
            raise NotACallError
        self._held.clear()
        self._parts.append(CallBegin(self._num_calls, name))
        self._num_calls += 1
        self._is_in_call = True
        self._is_amid_content = False

    def _give_arguments(self, text: str) -> None:
        self._held.clear()
        self._parts.append(CallArguments(self._num_calls - 1, text))

    def _give_content(self, num_characters: int) -> None:
        text = "".join(self._held[:num_characters])
        del self._held[:num_characters]
        if self._num_calls and not self._is_amid_content:
            text = text.lstrip(WHITE_SPACE)
        if text:
            self._parts.append(Content(text))
            self._is_amid_content = True
