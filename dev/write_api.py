"""Writes docs/api.md, the list of all routes with the fields of their request bodies, from the schemas themselves.

    write_api.py [--check]

With `--check` it writes nothing, and exits 1 where the file is not what it would write.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from paceline.gateway.fronts import choose_fronts
from paceline.gateway.http.field_types import Effect, Only
from paceline.gateway.http.front import Front

TARGET = Path(__file__).parents[1] / "docs" / "api.md"
HEADER = """# HTTP APIs

The gateway speaks several APIs at once. `--fronts` names those that are on; without it, all are on. In each of them,
`default` is a name of the first model. A request body with a field that is not listed here is refused with status 400,
and the error names the field. In the tables,

- *honoured* means that the field does what the API's own documentation says,
- *no effect* means that the field is accepted, and that nothing is done differently because of it,
- *only ...* means that these values are accepted, because they ask for what is done anyway; others are refused.

Responses also have a field `speculation`, which says how many tokens were drafted and accepted. It is Paceline's own.
"""


def front_lines(front: Front) -> Iterator[str]:
    """Yields the section of one front."""
    routes = [
        route for route in front.create_routes().routes if isinstance(route, APIRoute) and route.include_in_schema
    ]
    yield from ("", f"## {front.name}", "")
    yield from (f"- `{' '.join(sorted(route.methods))} {route.path}`" for route in routes)
    seen: dict[type[BaseModel], None] = {}
    for schema in front.schemas:
        collect(schema, seen)
    for schema in seen:
        yield from schema_lines(schema, front)


def collect(schema: type[BaseModel], seen: dict[type[BaseModel], None]) -> None:
    """Adds a schema, and all that its fields contain, to those that were seen."""
    if schema not in seen:
        seen[schema] = None
        for field in schema.model_fields.values():
            for part in parts_of(field.annotation):
                if isinstance(part, type) and issubclass(part, BaseModel):
                    collect(part, seen)


def parts_of(annotation: Any) -> Iterator[Any]:  # noqa: ANN401 - a type expression
    """Yields the types of which a type expression is made."""
    if typing.get_origin(annotation) is Literal:
        return
    yield annotation
    for part in typing.get_args(annotation):
        yield from parts_of(part)


def schema_lines(schema: type[BaseModel], front: Front) -> Iterator[str]:
    """Yields the table of one schema."""
    first, _, _ = (schema.__doc__ or "").partition("\n\n")
    yield from ("", f"### {front.name}: {schema.__name__}", "", " ".join(first.split()), "")
    yield from ("| field | type | |", "|---|---|---|")
    for name, field in schema.model_fields.items():
        need = "required, " if field.is_required() else ""
        yield f"| `{field.alias or name}` | {shown(field.annotation, front)} | {need}{effect_of(field)} |"


def effect_of(field: FieldInfo) -> str:
    """Returns what the field does."""
    if Effect.NONE in field.metadata:
        return "no effect"
    for mark in field.metadata:
        if isinstance(check := getattr(mark, "func", None), Only):
            values = [f"`{literal(value)}`" for value in check.allowed if value is not None]
            return f"only {', '.join(values)}" if values else "refused"
    return "honoured"


def literal(value: Any) -> str:  # noqa: ANN401 - a JSON value
    """Returns a value as JSON has it."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value).replace("'", '"')


def shown(annotation: Any, front: Front) -> str:  # noqa: ANN401 - a type expression
    """Returns a type expression in words of JSON."""
    arguments = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case typing.Annotated:
            return shown(arguments[0], front)
        case typing.Union | types.UnionType:
            return " or ".join(dict.fromkeys(shown(one, front) for one in arguments if one is not types.NoneType))
        case typing.Literal:
            return ", ".join(f"`{literal(one)}`" for one in arguments)
        case origin if origin in (list, tuple):
            return f"list of {shown(arguments[0], front)}"
        case origin if origin is dict:
            return "object"
        case _:
            names = {str: "text", int: "integer", float: "number", bool: "boolean", list: "list", dict: "object"}
            name = getattr(annotation, "__name__", "")
            is_schema = isinstance(annotation, type) and issubclass(annotation, BaseModel)
            return (
                f"[{name}](#{front.name}-{name.lower()})" if is_schema else names.get(annotation, name.lower() or "any")
            )


def render() -> str:
    """Returns the whole file."""
    return HEADER + "\n".join(line for front in choose_fronts(None) for line in front_lines(front)) + "\n"


def main() -> None:
    """Runs the command line."""
    text = render()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != text:
        sys.exit("docs/api.md is not what the schemas declare: run dev/write_api.py")


if __name__ == "__main__":
    main()
