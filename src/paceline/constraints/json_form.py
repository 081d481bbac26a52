"""Narrows JSON schemas so that small models do not write without end.

Where a grammar allows it, small models repeat white space and digits until the answer is cut off. So white space is one
space after each comma and each colon, as models write it, and nothing elsewhere. That also leaves more tokens without a
choice. Numbers have at most nine decimal places and the magnitude of integers that every JSON reader keeps exactly.
"""

from __future__ import annotations

from typing import Any

MAX_INTEGER = 2**53 - 1
STEP_OF_NUMBERS = 1e-9

Schema = dict[str, Any]

_SCHEMA_KEYS = ("items", "additionalProperties", "contains")
_LIST_KEYS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAP_KEYS = ("properties", "patternProperties", "$defs", "definitions")


def any_object() -> Schema:
    """Returns the schema of any JSON object."""
    value = {"$ref": "#/$defs/value"}
    kinds: list[Schema] = [
        {"type": "object", "additionalProperties": value},
        {"type": "array", "items": value},
        {"type": ["string", "boolean", "null"]},
        {"type": "number"},
    ]
    return {"type": "object", "additionalProperties": value, "$defs": {"value": {"anyOf": kinds}}}


def json_form(schema: Schema, *, is_lenient: bool) -> Schema:
    """Returns the schema with bounded numbers, and with the options of `llguidance` for the form of JSON.

    With `is_lenient`, keywords that `llguidance` cannot enforce are ignored; otherwise it refuses them.
    """
    options = {
        "whitespace_flexible": False,
        "item_separator": ", ",
        "key_separator": ": ",
        "coerce_one_of": True,
        "lenient": is_lenient,
    }
    return {**_bounded(schema), "x-guidance": options}


def _bounded(schema: Schema) -> Schema:
    """Returns the schema with bounds for its numbers, at every depth."""
    bounded = dict(schema)
    for key in _SCHEMA_KEYS:
        if isinstance(inner := schema.get(key), dict):
            bounded[key] = _bounded(inner)
    for key in _LIST_KEYS:
        if isinstance(inner := schema.get(key), list):
            bounded[key] = [_bounded(one) if isinstance(one, dict) else one for one in inner]
    for key in _MAP_KEYS:
        if isinstance(inner := schema.get(key), dict):
            bounded[key] = {name: _bounded(one) if isinstance(one, dict) else one for name, one in inner.items()}
    return {**_number_bounds(schema), **bounded}


def _number_bounds(schema: Schema) -> Schema:
    """Returns the bounds that a schema of numbers lacks."""
    types = schema.get("type")
    types = types if isinstance(types, list) else [types]
    if not {"number", "integer"}.intersection(one for one in types if isinstance(one, str)) or "enum" in schema:
        return {}
    bounds: Schema = {} if "integer" in types and "number" not in types else {"multipleOf": STEP_OF_NUMBERS}
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if least is None and (not isinstance(most, int | float) or most > -MAX_INTEGER):
        bounds["minimum"] = -MAX_INTEGER
    if most is None and (not isinstance(least, int | float) or least < MAX_INTEGER):
        bounds["maximum"] = MAX_INTEGER
    return bounds
