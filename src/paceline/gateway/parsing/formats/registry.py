"""The formats of tool calls by name. A new format is a new file and an entry here."""

from __future__ import annotations

from paceline.gateway.parsing.formats.call_format import CallFormat
from paceline.gateway.parsing.formats.hermes import HermesFormat
from paceline.gateway.parsing.formats.llama3 import Llama3Format
from paceline.gateway.parsing.formats.mistral import MistralFormat
from paceline.gateway.parsing.formats.qwen3_coder import Qwen3CoderFormat

_FORMATS: tuple[CallFormat, ...] = (Qwen3CoderFormat(), HermesFormat(), MistralFormat(), Llama3Format())
"""In the order in which they are looked for in a template."""


def format_names() -> list[str]:
    """Returns the names of all formats."""
    return [one.name for one in _FORMATS]


def find_format(name: str) -> CallFormat | None:
    """Returns the format with this name, or None if there is none."""
    return next((one for one in _FORMATS if one.name == name), None)


def detect_format(template_source: str) -> str | None:
    """Returns the name of the format that a model with this chat template writes, or None if it shows none."""
    return next((one.name for one in _FORMATS if one.is_format_of(template_source)), None)
