"""The parts of an answer, as the parsers give them out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of the text in which the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A tool call begins. `index` counts the calls of an answer from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the JSON text of a call's arguments. `index` is that of the call's `CallBegin`."""

    index: int
    text: str


Part: TypeAlias = Reasoning | Content | CallBegin | CallArguments


def merged(parts: Iterable[Part]) -> list[Part]:
    """Returns the parts with neighbours of one kind joined. Arguments of different calls stay apart."""
    joined: list[Part] = []
    for _, group in groupby(parts, key=_kind):
        first, *others = group
        if isinstance(first, CallBegin):
            joined += [first, *others]
        else:
            texts = [first.text, *(part.text for part in others if not isinstance(part, CallBegin))]
            joined.append(replace(first, text="".join(texts)))
    return joined


def _kind(part: Part) -> tuple[type[Part], int | None]:
    return type(part), part.index if isinstance(part, CallArguments) else None
