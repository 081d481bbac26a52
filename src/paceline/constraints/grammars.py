"""Turns a constraint, in whatever language it is written, into the one kind of grammar that `llguidance` compiles."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from paceline.constraints.compile_worker import UNREAD
from paceline.constraints.json_form import any_object, json_form
from paceline.core import Constraint, Preface
from paceline.core.errors import InvalidRequestError

MAX_SOURCE_CHARACTERS = 2**18
GUIDANCE = "guidance"
"""The kind whose source is the grammar itself, as `guidance_grammar` returns it."""

Grammar = dict[str, Any]  # one entry of the list `grammars` of llguidance
Grammars = list[Grammar]  # the first is where the output begins


def guidance_grammar(constraint: Constraint) -> str:
    """Returns the grammar of the whole output, as JSON for `compile_worker.read_grammar`. Nothing has checked it yet.

    Raises InvalidRequestError, with the constraint's field, for an unknown kind and for a source that cannot be read.
    """
    if constraint.kind == GUIDANCE:
        return constraint.source
    if len(constraint.source) > MAX_SOURCE_CHARACTERS:
        raise refusal(constraint, f"it has more than {MAX_SOURCE_CHARACTERS} characters")
    write = _WRITERS.get(constraint.kind)
    if write is None:
        raise refusal(constraint, f"{constraint.kind!r} is not one of the known kinds: {', '.join(_WRITERS)}")
    try:
        grammars = write(constraint.source)
    except RecursionError as error:
        raise refusal(constraint, "it is nested too deeply") from error
    except (LookupError, TypeError, ValueError) as error:
        raise refusal(constraint, str(error)) from error
    if constraint.preface is not None:
        grammars = [_preface(constraint.preface), *_named("form", grammars)]
    return json.dumps({"grammars": grammars})


def refusal(constraint: Constraint, reason: str) -> InvalidRequestError:
    """Returns the error for a constraint that cannot be honoured."""
    return InvalidRequestError(
        f"{constraint.field} cannot be honoured: {reason}", constraint.field, "unsupported_constraint"
    )


def _named(name: str, grammars: Grammars) -> Grammars:
    """Returns the grammars with this name for the first, by which other grammars refer to it."""
    first, *others = grammars
    return [{**first, "name": name}, *others]


def _preface(preface: Preface) -> Grammar:
    """Returns the grammar of free text that ends with `preface.end`, of some white space, and of the form after it."""
    begin = "" if preface.is_open else json.dumps(preface.begin)
    lines = [
        f"start: {'preface gap' if preface.is_open else '(preface gap)?'} @form",
        f"preface[lazy]: {begin} /(.|\\n)*/ {json.dumps(preface.end)}",
        "gap: /[ \\n]{0,4}/",
    ]
    return {"lark_grammar": "\n".join(lines)}


def _json_schema(source: str) -> Grammars:
    return _schema_grammar(source, is_lenient=False)


def _lenient_json_schema(source: str) -> Grammars:
    return _schema_grammar(source, is_lenient=True)


def _schema_grammar(source: str, *, is_lenient: bool) -> Grammars:
    schema = json.loads(source)
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise ValueError("a schema must be a json object")
    return [{"json_schema": json_form(schema, is_lenient=is_lenient)}]


def _json_object(source: str) -> Grammars:
    """Ignores the source, because there is nothing to say about the object."""
    return [{"json_schema": json_form(any_object(), is_lenient=False)}]


def _regex(source: str) -> Grammars:
    return _lark(f"start: FORM\nFORM: /{_escaped_slashes(source)}/")


def _lark(source: str) -> Grammars:
    return [{"lark_grammar": source}]


def _grammar(source: str) -> Grammars:
    """Takes Lark or GBNF. `compile_worker.read_grammar` finds out which, since that can take long."""
    return [{UNREAD: source}]


def _choice(source: str) -> Grammars:
    choices = json.loads(source)
    if not isinstance(choices, list) or not choices or not all(isinstance(one, str) and one for one in choices):
        raise ValueError("it must be a list of texts that are not empty")
    return _lark(f"start: {' | '.join(json.dumps(one) for one in dict.fromkeys(choices))}")


def _any_of(source: str) -> Grammars:
    """Takes a JSON list of objects with `kind` and `source`; the output has one of these forms."""
    forms = [_WRITERS[form["kind"]](form["source"]) for form in json.loads(source)]
    names = [f"form_{number}" for number in range(len(forms))]
    first = _lark(f"start: {' | '.join(f'@{name}' for name in names)}")
    return [*first, *(one for name, form in zip(names, forms, strict=True) for one in _named(name, form))]


def _escaped_slashes(pattern: str) -> str:
    """Returns a regular expression as it may stand between two slashes."""
    written = ""
    is_escaped = False
    for character in pattern:
        written += "\\/" if character == "/" and not is_escaped else "\\n" if character == "\n" else character
        is_escaped = character == "\\" and not is_escaped
    return written


_WRITERS: Mapping[str, Callable[[str], Grammars]] = MappingProxyType(
    {
        "json_schema": _json_schema,
        "lenient_json_schema": _lenient_json_schema,
        "json_object": _json_object,
        "regex": _regex,
        "lark": _lark,
        "grammar": _grammar,
        "choice": _choice,
        "any_of": _any_of,
    }
)
CONSTRAINT_KINDS = (*_WRITERS, GUIDANCE)
"""The kinds of constraints that Paceline knows, by name."""
