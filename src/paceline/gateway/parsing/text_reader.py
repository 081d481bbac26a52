"""`TextReader`: the base of the streaming parsers. A parser is a generator that reads one character at a time.

Because a parser never sees where one pushed text ends and the next begins, the result does not depend on these places.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from itertools import takewhile
from typing import TypeAlias, TypeVar

from paceline.gateway.parsing.events import Part, merged

T = TypeVar("T")
Reading: TypeAlias = Generator[None, None, T]
"""A part of a parser: it yields when it needs more text, and returns what it has read."""

WHITE_SPACE = " \t\r\n"


class TextEndedError(Exception):
    """The text ended where a parser wanted to read on."""


class TextReader(ABC):
    """Reads text that arrives in pieces, and gives out parts. Subclasses write `_run`, which never returns."""

    def __init__(self) -> None:
        self._ahead: deque[str] = deque()
        self._held: list[str] = []
        """The characters that were read but neither given out nor dropped; the subclass keeps this list short."""
        self._parts: list[Part] = []
        self._reading = self._run()

    def push(self, text: str) -> list[Part]:
        """Reads more text and returns the parts that are now certain, neighbours of one kind joined."""
        self._ahead.extend(text)
        next(self._reading)
        return self._taken_parts()

    def finish(self) -> list[Part]:
        """Returns the last parts. The text has ended, perhaps within a call; `push` must not be used any more."""
        try:
            self._reading.throw(TextEndedError)
        except TextEndedError:
            self._end()
        return self._taken_parts()

    @abstractmethod
    def _run(self) -> Reading[None]:
        """Reads the whole text."""

    @abstractmethod
    def _end(self) -> None:
        """Gives out what is still held at the end of the text."""

    def _taken_parts(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return merged(parts)

    def _next(self) -> Reading[str]:
        """Reads one character."""
        while not self._ahead:
            yield
        character = self._ahead.popleft()
        self._held.append(character)
        return character

    def _plain_text(self, markers: Sequence[str]) -> str:
        """Reads the text that has arrived up to where a marker may begin, and returns it; it is not held."""
        firsts = {marker[0] for marker in markers}
        plain = "".join(takewhile(lambda character: character not in firsts, self._ahead))
        for _ in plain:
            self._ahead.popleft()
        return plain

    def _unread(self, text: str) -> None:
        """Puts back the last characters that were read, so that they are read again."""
        del self._held[len(self._held) - len(text) :]
        self._ahead.extendleft(reversed(text))

    def _peek(self) -> Reading[str]:
        """Reads any white space, and returns the character after it without reading it."""
        character = WHITE_SPACE[0]
        while character in WHITE_SPACE:
            character = yield from self._next()
        self._unread(character)
        return character

    def _one_of(self, texts: Sequence[str]) -> Reading[str | None]:
        """Reads one of the texts and returns it; reads nothing and returns None if none of them comes next."""
        read = ""
        while read not in texts:
            read += yield from self._next()
            if not _is_beginning(read, texts):
                self._unread(read)
                return None
        return read

    def _until(self, markers: Sequence[str], give: Callable[[str], None]) -> Reading[str]:
        """Reads up to the first marker and returns it.

        Calls `give` with each piece of text that begins no marker. Only characters that may begin one stay held.
        """
        pending = ""
        while pending not in markers:
            if not pending and (plain := self._plain_text(markers)):
                give(plain)
            pending += yield from self._next()
            while not _is_beginning(pending, markers):
                give(pending[0])
                pending = pending[1:]
            self._held[:] = pending
        return pending


def _is_beginning(text: str, texts: Sequence[str]) -> bool:
    return any(one.startswith(text) for one in texts)
