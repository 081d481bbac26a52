"""Fields of requests that try to make forms of answers expensive. Each call gives another one, so no cache helps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any

Fields = dict[str, Any]


def hostile_forms() -> Mapping[str, Callable[[], Fields]]:
    """Returns makers of such fields, by name."""
    numbers = count(1)

    def schema(value: Fields) -> Fields:
        wanted = {"name": f"form{next(numbers)}", "strict": True, "schema": {**value, "title": f"t{next(numbers)}"}}
        return {"response_format": {"type": "json_schema", "json_schema": wanted}}

    return MappingProxyType(
        {
            "deep": lambda: schema(_nested(60)),
            "too deep": lambda: schema(_nested(400)),
            "recursive": lambda: schema(_RECURSIVE),
            "refers to itself": lambda: schema({"$ref": "#"}),
            "exponential alternatives": lambda: schema(_alternatives(25)),
            "product of alternatives": lambda: schema(_product(9, 4)),
            "huge enum": lambda: schema({"enum": [f"value-{next(numbers)}-{i}" for i in range(9000)]}),
            "many properties": lambda: schema({"properties": {f"p{i}": {"type": "string"} for i in range(6000)}}),
            "huge bounds": lambda: schema({"type": "array", "items": {"type": "string"}, "minItems": 100_000}),
            "multiple of a prime": lambda: schema({"type": "integer", "multipleOf": 982_451_653}),
            "nested repetition": lambda: {"regex": f"(((a{{100}}){{100}}){{{100 + next(numbers)}}})"},
            "catastrophic pattern": lambda: {"regex": f"(a|a)*b(a|b){{{200 + next(numbers)}}}"},
            "ambiguous repetition": lambda: {"regex": f"(.*[ab].{{12}}){{{12 + next(numbers) % 9}}}"},
            "long chain of rules": lambda: {"grammar": _chain(3000 + next(numbers))},
            "ambiguous grammar": lambda: {"grammar": f'start: e\ne: e e | "a{next(numbers)}" | "a" e | e "a" | e e e'},
        }
    )


def _nested(depth: int) -> Fields:
    schema: Fields = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    return schema


_RECURSIVE: Fields = {
    "$defs": {
        "n": {
            "anyOf": [
                {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/$defs/n"}}},
                {"type": "array", "items": {"$ref": "#/$defs/n"}},
            ]
        }
    },
    "$ref": "#/$defs/n",
}


def _alternatives(depth: int) -> Fields:
    definitions: Fields = {f"d{depth}": {"type": "string"}}
    for level in range(depth):
        deeper = {"$ref": f"#/$defs/d{level + 1}"}
        definitions[f"d{level}"] = {"anyOf": [deeper, {"type": "array", "items": deeper}]}
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


def _product(num_factors: int, num_alternatives: int) -> Fields:
    def factor(number: int) -> Fields:
        names = [f"p{number}-{other}" for other in range(num_alternatives)]
        return {"anyOf": [{"type": "object", "properties": {name: {"type": "string"}}} for name in names]}

    return {"allOf": [factor(number) for number in range(num_factors)]}


def _chain(length: int) -> str:
    rules = [f'r{number}: "a" r{(number + 1) % length} | "z"' for number in range(length)]
    return "\n".join(["start: r0", *rules])
