"""Generates JSON schemas, as programs that ask models for data write them, from a seed.

They nest to three levels, refer to local definitions, and have enums, patterns, formats, bounds and alternatives.
Strings have at most 40 characters and arrays at most four items. A few have a keyword that cannot be enforced.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Schema = dict[str, Any]

MAX_STRING_LENGTH = 40
MAX_ITEMS = 4
_MAX_DEPTH = 3
_SHARE_WITH_HARD_KEYWORD = 0.06
_NAMES = (
    *("name", "title", "city", "email", "age", "price", "tags", "status", "items", "address", "notes", "rating"),
    *("country", "quantity", "color", "author", "year", "language", "score", "active", "category", "phone", "unit"),
)
_WORDS = ("red", "green", "blue", "small", "large", "open", "closed", "draft", "final", "low", "high", "metric")
_PATTERNS = (
    *("^[A-Z][a-z]{2,12}$", "^[a-z][a-z0-9_]{1,15}$", "^[0-9]{3}-[0-9]{4}$", "^(north|south)-[0-9]{1,3}$"),
    *("^[A-Z]{2}[0-9]{4}$", r"^\d{1,2}:\d{2}$", "^#[0-9a-f]{6}$", r"^v\d+\.\d+$"),
)
_FORMATS = ("date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "hostname", "uri", "duration")
_HARD_KEYWORDS: tuple[tuple[str, Schema], ...] = (
    ("array", {"uniqueItems": True}),
    ("string", {"not": {"const": "none"}}),
    ("object", {"propertyNames": {"maxLength": 20}}),
    ("object", {"if": {"required": ["name"]}, "then": {"required": ["age"]}}),
    ("string", {"pattern": "^(?=.*[0-9])[a-z0-9]{4,12}$"}),
    ("object", {"dependentRequired": {"name": ["age"]}}),
)


def generate_schema(seed: int) -> Schema:
    """Returns the schema of an object; the same seed gives the same schema."""
    return _Generator(Random(seed)).whole()


class _Generator:
    """Makes one schema. `_definitions` are the names to which it may refer."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._definitions: tuple[str, ...] = ()

    def whole(self) -> Schema:
        definitions = {name: self._object(_MAX_DEPTH - 1) for name in self._some(("point", "person", "entry"), 0, 2)}
        self._definitions = tuple(definitions)
        schema = self._object(0)
        if self._random.random() < _SHARE_WITH_HARD_KEYWORD:
            kind, keywords = self._random.choice(_HARD_KEYWORDS)
            part = schema if kind == "object" else {"type": kind}
            part.update(keywords)
            schema["properties"]["extra"] = {} if kind == "object" else part
        return {**schema, "$defs": definitions} if definitions else schema

    def _object(self, depth: int) -> Schema:
        names = self._some(_NAMES, 1, 4)
        required = self._some(names, 1, len(names))
        return {
            "type": "object",
            "properties": {name: self._value(depth + 1) for name in names},
            "required": [name for name in names if name in required],
            "additionalProperties": False,
        }

    def _value(self, depth: int) -> Schema:
        leaves = [self._string, self._integer, self._number, self._enum, self._constant_kind]
        nested: list[Callable[[int], Schema]] = [self._object, self._array, self._alternatives, self._reference]
        if depth < _MAX_DEPTH and self._random.random() < 0.4:
            return self._random.choice(nested)(depth)
        return self._random.choice(leaves)()

    def _array(self, depth: int) -> Schema:
        least = self._random.randint(0, 2)
        schema = {"type": "array", "items": self._value(depth + 1), "minItems": least}
        return {**schema, "maxItems": self._random.randint(max(1, least), MAX_ITEMS)}

    def _alternatives(self, depth: int) -> Schema:
        return {"anyOf": [self._value(depth + 1) for _ in range(self._random.randint(2, 3))]}

    def _reference(self, depth: int) -> Schema:
        if not self._definitions:
            return self._object(depth)
        return {"$ref": f"#/$defs/{self._random.choice(self._definitions)}"}

    def _string(self) -> Schema:
        match self._random.randrange(4):
            case 0:
                return {"type": "string", "pattern": self._random.choice(_PATTERNS)}
            case 1:
                return {"type": "string", "format": self._random.choice(_FORMATS), "maxLength": MAX_STRING_LENGTH}
            case 2:
                return {"type": "string", "minLength": 1, "maxLength": self._random.randint(5, MAX_STRING_LENGTH)}
            case _:
                return {"type": "string", "maxLength": MAX_STRING_LENGTH, "description": "in a few words"}

    def _integer(self) -> Schema:
        least = self._random.randint(-100, 100)
        bounds = [{}, {"minimum": least}, {"minimum": least, "maximum": least + self._random.randint(1, 500)}]
        return {"type": "integer", **self._random.choice(bounds), **self._random.choice([{}, {}, {"multipleOf": 5}])}

    def _number(self) -> Schema:
        bounds: list[Schema] = [
            {"minimum": 0},
            {"exclusiveMinimum": 0, "maximum": 100},
            {"minimum": -90, "maximum": 90},
        ]
        return {"type": "number", **self._random.choice(bounds)}

    def _enum(self) -> Schema:
        return {"enum": [*self._some(_WORDS, 2, 4), *self._some((1, 2, None, True), 0, 1)]}

    def _constant_kind(self) -> Schema:
        kinds: list[Schema] = [{"type": "boolean"}, {"type": ["string", "null"], "maxLength": 20}, {"const": "fixed"}]
        return self._random.choice(kinds)

    def _some(self, values: Any, least: int, most: int) -> list[Any]:  # noqa: ANN401
        """Returns some of the values, in a random order."""
        return self._random.sample(values, self._random.randint(least, min(most, len(values))))
