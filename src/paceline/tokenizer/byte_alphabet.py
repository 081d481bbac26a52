"""GPT-2's byte alphabet: the printable character that stands for each byte in a byte-level vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def byte_alphabet() -> tuple[str, ...]:
    """Returns the 256 characters, by byte: printable Latin-1 stands for itself, the rest is numbered from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return tuple(chr(byte) if byte in printable else chr(0x100 + others.index(byte)) for byte in range(256))


def bytes_by_character() -> Mapping[str, int]:
    """Returns the byte that each character of the alphabet stands for."""
    return MappingProxyType({character: byte for byte, character in enumerate(byte_alphabet())})
