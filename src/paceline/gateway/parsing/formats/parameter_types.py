"""What a tool's schema says about the types of its parameters, for formats that do not write values as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

STRING_ONLY = frozenset({"string"})
_PYTHON_CONSTANTS = (("True", "true"), ("False", "false"), ("None", "null"))


def parameter_schemas(parameters: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Returns the schema of each parameter, with the definitions that it may refer to."""
    schema = parameters or {}
    definitions: dict[str, Any] = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    resolved = {name: _resolved(one, definitions) for name, one in schema.get("properties", {}).items()}
    return {name: {**one, **definitions} if "$ref" in json.dumps(one) else one for name, one in resolved.items()}


def types_of(schema: dict[str, Any]) -> frozenset[str]:
    """Returns the names of the JSON types that a value may have; nothing if the schema does not say."""
    if "type" in schema:
        return frozenset([schema["type"]] if isinstance(schema["type"], str) else schema["type"])
    values = _only_values(schema)
    if values is not None:
        return frozenset().union(*map(_types_of_value, values))
    choices = [types_of(one) for one in schema.get("anyOf", schema.get("oneOf", []))]
    return frozenset().union(*choices) if all(choices) else frozenset()


def fixed_texts(schema: dict[str, Any]) -> list[str] | None:
    """Returns the only strings that the schema allows, or None if it allows others or other types."""
    values = _only_values(schema)
    return values if values and all(isinstance(value, str) for value in values) else None


def json_text(text: str, types: frozenset[str]) -> str:
    """Returns a value as JSON: as it is if it is JSON of a possible type, otherwise as a string.

    The names that Python has for true, false and null are understood, because models write them.
    """
    written = dict(_PYTHON_CONSTANTS).get(text.strip(), text.strip())
    try:
        value = json.loads(written)
    except ValueError:
        return json.dumps(text, ensure_ascii=False)
    is_possible = "string" not in types or bool(types & _types_of_value(value))
    return written if is_possible else json.dumps(text, ensure_ascii=False)


def _only_values(schema: dict[str, Any]) -> list[Any] | None:
    values: list[Any] | None = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return values


def _types_of_value(value: object) -> frozenset[str]:
    if isinstance(value, bool):
        return frozenset({"boolean"})
    names: Iterable[tuple[type, set[str]]] = (
        (str, {"string"}),
        (int, {"integer", "number"}),
        (float, {"number"}),
        (list, {"array"}),
        (dict, {"object"}),
    )
    return next((frozenset(types) for kind, types in names if isinstance(value, kind)), frozenset({"null"}))


def _resolved(schema: object, definitions: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema that a reference to a definition stands for, and any other schema as it is."""
    if not isinstance(schema, dict):
        return {}
    path = str(schema.get("$ref", "")).split("/")
    if len(path) == 3 and path[0] == "#" and path[2] in definitions.get(path[1], {}):
        target = definitions[path[1]][path[2]]
        return target if isinstance(target, dict) else {}
    return schema
