"""Tools for the tests of parsers, and what a client sees of an answer, however its text was split."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from paceline.gateway.parsing.events import Part, merged
from paceline.gateway.parsing.formats.call_format import CallFormat
from paceline.gateway.parsing.formats.registry import find_format
from paceline.gateway.parsing.tools import Tool

WEATHER = Tool(
    "get_weather",
    "Tells the weather.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"enum": ["C", "F"]},
            "options": {"type": "object"},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
    True,
)
TIME = Tool("get", None, None, False)
TOOLS = (WEATHER, TIME)


class Parser(Protocol):
    """What all streaming parsers have."""

    def push(self, text: str) -> list[Part]: ...

    def finish(self) -> list[Part]: ...


def format_named(name: str) -> CallFormat:
    found = find_format(name)
    assert found is not None
    return found


def parsed_pieces(parser: Parser, pieces: Iterable[str]) -> list[Part]:
    parts = [part for piece in pieces for part in parser.push(piece)]
    return merged([*parts, *parser.finish()])


def parsed(make_parser: Callable[[], Parser], text: str) -> list[Part]:
    """Returns the parts of the text; asserts that they are the same for every split in two and for single letters."""
    whole = parsed_pieces(make_parser(), [text])
    assert parsed_pieces(make_parser(), text) == whole
    for place in range(len(text) + 1):
        assert parsed_pieces(make_parser(), [text[:place], text[place:]]) == whole, place
    return whole


def calls_of(name: str, text: str) -> list[Part]:
    """Returns the parts of the text in the format with this name."""
    return parsed(lambda: format_named(name).parser(TOOLS), text)
