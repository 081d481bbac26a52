"""`JsonCallReader`: reads a call that is a JSON object with the name and the arguments, as several formats have it."""

from __future__ import annotations

import json
from collections.abc import Callable

from paceline.gateway.parsing.formats.call_reader import CallReader, NotACallError
from paceline.gateway.parsing.text_reader import Reading

Give = Callable[[str], None]

_ARGUMENT_KEYS = ("arguments", "parameters")
_SCALAR_CHARACTERS = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class JsonCallReader(CallReader):
    """Reads `{"name": ..., "arguments": ...}`, with the keys in any order and with further keys, which it drops.

    Arguments are given out as the model writes them, unchecked apart from nesting; arguments before the name are held
    until the name is known. A call without arguments gets `{}`.
    """

    def _json_call(self) -> Reading[None]:
        """Reads one call. After the name, it ends without error where the text stops being JSON."""
        yield from self._peek()
        yield from self._expect("{")
        self._is_in_call = False
        early, num_arguments, separator = list[str](), 0, ","
        while separator == ",":
            key = yield from self._key()
            if key == "name" and not self._is_in_call:
                self._begin_call((yield from self._json_text()))
                if early:
                    self._give_arguments("".join(early))
            elif key in _ARGUMENT_KEYS and not num_arguments:
                num_arguments += 1
                yield from self._value(self._give_arguments if self._is_in_call else early.append)
            else:
                yield from self._value(_drop)
            separator = yield from self._peek()
            if separator in ",}":
                yield from self._next()
            elif not self._is_in_call:
                yield from self._expect(",")
        if not self._is_in_call:
            raise NotACallError
        if not num_arguments:
            self._give_arguments("{}")
        self._held.clear()

    def _key(self) -> Reading[str]:
        yield from self._peek()
        key = yield from self._json_text()
        yield from self._peek()
        yield from self._expect(":")
        return key

    def _json_text(self) -> Reading[str]:
        """Reads a JSON string and returns its value."""
        if (yield from self._peek()) != '"':
            yield from self._expect('"')
        characters: list[str] = []
        yield from self._string(characters.append)
        try:
            return str(json.loads("".join(characters), strict=False))
        except ValueError as error:
            raise NotACallError from error

    def _value(self, give: Give) -> Reading[None]:
        first = yield from self._peek()
        if first in "{[":
            yield from self._container(give)
        elif first == '"':
            yield from self._string(give)
        else:
            yield from self._scalar(give)

    def _container(self, give: Give) -> Reading[None]:
        """Reads an object or array up to its last bracket."""
        depth = 0
        while True:
            character = yield from self._next()
            if character == '"':
                self._unread(character)
                yield from self._string(give)
                continue
            give(character)
            depth += (character in "{[") - (character in "}]")
            if depth == 0:
                return

    def _string(self, give: Give) -> Reading[None]:
        """Reads a string with both its quotes."""
        give((yield from self._next()))
        while True:
            character = yield from self._next()
            give(character)
            if character == '"':
                return
            if character == "\\":
                give((yield from self._next()))

    def _scalar(self, give: Give) -> Reading[None]:
        """Reads a number, true, false or null."""
        character = yield from self._next()
        if character not in _SCALAR_CHARACTERS:
            raise NotACallError
        while character in _SCALAR_CHARACTERS:
            give(character)
            character = yield from self._next()
        self._unread(character)


def _drop(character: str) -> None:
    """Gives out nothing."""
