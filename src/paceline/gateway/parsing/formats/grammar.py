"""Pieces of grammars in llguidance's Lark dialect that the formats share.

JSON has the separators `", "` and `": "` and no other white space, as the chat templates write it, so that most
punctuation is forced. See https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from paceline.constraints.json_form import json_form
from paceline.gateway.parsing.tools import Tool

_NO_CONSTRAINT_KEYS = frozenset(
    {"$schema", "additionalProperties", "description", "properties", "required", "title", "type"}
)


def lines(*rules: str) -> str:
    """Returns the rules as one grammar."""
    return "\n".join(["%llguidance {}", *rules, ""])


def text(literal: str) -> str:
    """Returns an expression that matches this text."""
    return json.dumps(literal, ensure_ascii=False)


def free_text(trigger: str) -> list[str]:
    """Returns the rules TEXT, which is any text, and begin, which is text up to the first trigger.

    As soon as the trigger has been written, the text cannot be TEXT any more.
    """
    return [f"begin[lazy]: TEXT {text(trigger)}", r"TEXT: /(.|\n)*/"]


def marked_calls(marker: str, call: str, separator: str, *, is_required: bool, is_parallel: bool) -> str:
    """Returns a grammar for answers in which each call is the marker and then the expression `call`."""
    more = f"({text(separator + marker)} call)*" if is_parallel else ""
    if is_required:
        return lines(f"start: {text(marker)} call {more}", f"call: {call}")
    return lines(f"start: TEXT | begin call {more}", *free_text(marker), f"call: {call}")


def json_calls(tools: Sequence[Tool], arguments_key: str) -> str:
    """Returns an expression for a JSON object with the name and the arguments of one of the tools."""
    key = f', "{arguments_key}": '
    heads = [text(f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}{key}') for tool in tools]
    return " | ".join(f'{head} {arguments(tool)} "}}"' for head, tool in zip(heads, tools, strict=True))


def arguments(tool: Tool) -> str:
    """Returns an expression for a JSON object with arguments that the tool's schema allows."""
    schema = tool.parameters or {}
    if _has_no_parameters(schema):
        return text("{}")
    return json_value({"type": "object", **schema}, is_strict=tool.is_strict)


def _has_no_parameters(schema: dict[str, Any]) -> bool:
    """Returns whether the schema of a tool's arguments names no parameter and does not invite others expressly."""
    invites = schema.get("properties") or schema.get("required") or schema.get("additionalProperties")
    return not invites and schema.keys() <= _NO_CONSTRAINT_KEYS


def json_value(schema: dict[str, Any], *, is_strict: bool) -> str:
    """Returns an expression for a JSON value that the schema allows.

    Unless `is_strict`, parts of the schema that llguidance cannot enforce are ignored; otherwise llguidance refuses the
    grammar.
    """
    return f"%json {json.dumps(json_form(schema, is_lenient=not is_strict), ensure_ascii=False)}"
