"""Each kind of constraint allows the texts that it describes and no others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paceline.constraints.grammars import MAX_SOURCE_CHARACTERS, guidance_grammar
from paceline.core import Constraint, Preface
from paceline.core.errors import InvalidRequestError
from tests.constraints.byte_matcher import ByteMatcher

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
THINK = Preface(begin="<think>", end="</think>")


def schema(value: object, kind: str = "json_schema", **fields: Any) -> ByteMatcher:
    return ByteMatcher(Constraint(kind=kind, source=json.dumps(value), **fields))


def form(kind: str, source: str, **fields: Any) -> ByteMatcher:
    return ByteMatcher(Constraint(kind=kind, source=source, **fields))


def test_a_schema_allows_json_with_fixed_white_space() -> None:
    point = schema(POINT)
    assert point.allows('{"x": 1, "y": -20}')
    for wrong in (
        '{"x":1, "y": 2}',
        '{"x": 1,"y": 2}',
        '{ "x": 1, "y": 2}',
        '{"x": 1, "y": 2, "z": 3}',
        '{"x": 1}',
        "{}",
    ):
        assert not point.allows(wrong), wrong
    assert point.next_bytes('{"x": 1') == b",0123456789"[0:1] + b"0123456789"


def test_a_schema_cannot_loosen_the_white_space() -> None:
    assert not schema({**POINT, "x-guidance": {"whitespace_flexible": True}}).allows('{ "x": 1, "y": 2}')


@pytest.mark.parametrize("value", [True, {}])
def test_a_schema_without_rules_allows_any_json(value: object) -> None:
    for text in ('{"a": [1, {"b": null}]}', "17", '"é"', "[]"):
        assert schema(value).allows(text), text


def test_local_references_recursion_and_alternatives() -> None:
    tree = {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["name", "next"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/node",
    }
    assert schema(tree).allows('{"name": "a", "next": {"name": "b", "next": null}}')
    assert not schema(tree).allows('{"name": "a", "next": {"name": "b"}}')


@pytest.mark.parametrize(
    ("keywords", "reason"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"not": {"type": "string"}}, "not"),
        ({"if": {}, "then": {}}, "if"),
        ({"type": "string", "format": "no-format"}, "no-format"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-ahead"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(keywords: dict[str, object], reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        schema(keywords)
    if "pattern" not in keywords:
        schema(keywords, "lenient_json_schema")


@pytest.mark.parametrize(
    ("value", "right", "wrong"),
    [
        ({"type": "number"}, ["0", "-1.5", "12.000000001", "9007199254740991"], ["1e5", "1.0000000001", "1" * 17]),
        ({"type": "number", "minimum": 0, "exclusiveMaximum": 2}, ["0", "1.999999999"], ["-1", "2", "2.5"]),
        ({"type": "integer"}, ["0", "-9007199254740991"], ["1.5", "9007199254740992"]),
        ({"type": ["integer", "null"], "minimum": 3}, ["3", "null"], ["2", "1" * 17]),
        ({"type": "integer", "minimum": 10**17}, ["1" + "0" * 17], ["5"]),
        ({"type": "number", "multipleOf": 0.5}, ["1.5", "2"], ["1.3"]),
        ({"type": "integer", "enum": [7, 70]}, ["7", "70"], ["1", "700"]),
        ({"anyOf": [{"type": "array", "items": {"type": "number"}}]}, ["[1, 2.5]"], ["[1" + "0" * 17 + "]"]),
    ],
)
def test_numbers_are_bounded(value: dict[str, object], right: list[str], wrong: list[str]) -> None:
    numbers = schema(value)
    for text in right:
        assert numbers.allows(text), text
    for text in wrong:
        assert not numbers.allows(text), text


def test_any_object_is_an_object_with_bounded_numbers() -> None:
    anything = form("json_object", "")
    assert anything.allows('{"a": {"b": [1.5, "x", null, true, {}]}, "c": []}')
    for wrong in ("[]", "1", '{"a": ' + "1" * 17 + "}"):
        assert not anything.allows(wrong), wrong


def test_one_of_counts_as_any_of() -> None:
    assert schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}).allows("1")


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        ("[a-c]{2}", "ab", "abc"),
        ("^[0-9]+$", "123", "12a"),
        ("a/b", "a/b", "a"),
        (r"a\/b", "a/b", r"a\/b"),
        ("a\nb", "a\nb", "ab"),
        ("yes|no", "no", "yesno"),
        (r"\\/", "\\/", "/"),
    ],
)
def test_a_regular_expression_describes_the_whole_output(pattern: str, right: str, wrong: str) -> None:
    assert form("regex", pattern).allows(right)
    assert not form("regex", pattern).allows(wrong)


@pytest.mark.parametrize(
    "source", ['root ::= "a" number\nnumber ::= [0-9]+', 'start: "a" NUMBER\nNUMBER: /[0-9]+/'], ids=["gbnf", "lark"]
)
def test_grammars_may_be_gbnf_or_lark(source: str) -> None:
    assert form("grammar", source).allows("a12")
    assert form("grammar", source).num_allowed("ab") == 1


def test_a_grammar_that_is_neither_is_refused() -> None:
    with pytest.raises(ValueError, match="neither lark nor gbnf"):
        form("grammar", "root ::= (")


def test_a_choice_allows_its_texts() -> None:
    choice = form("choice", json.dumps(["yes", 'ye"s', "no\n", "yes"]))
    for text in ("yes", 'ye"s', "no\n"):
        assert choice.allows(text)
    assert not choice.allows("no")
    assert choice.next_bytes("ye") == b'"s'


def test_any_of_several_forms() -> None:
    forms = [{"kind": "choice", "source": '["none"]'}, {"kind": "json_schema", "source": json.dumps(POINT)}]
    either = form("any_of", json.dumps(forms))
    assert either.allows("none")
    assert either.allows('{"x": 1, "y": 2}')
    assert not either.allows("other")


def test_the_form_begins_after_the_preface() -> None:
    may_think = schema(POINT, preface=THINK)
    assert may_think.allows('{"x": 1, "y": 2}')
    assert may_think.allows('<think>{"x"? no,\n</thin></think>\n\n{"x": 1, "y": 2}')
    assert not may_think.allows("<think>only thoughts</think>")
    thinks = schema(POINT, preface=Preface(begin="<think>", end="</think>", is_open=True))
    assert thinks.allows('any thoughts</think>{"x": 1, "y": 2}')
    assert not thinks.allows('{"x": 1, "y": 2}')


def test_white_space_after_the_preface_is_bounded() -> None:
    assert schema(POINT, preface=THINK).num_allowed("<think></think>" + "\n" * 9) == len("<think></think>") + 4


@pytest.mark.parametrize(
    ("kind", "source", "reason"),
    [
        ("xml", "<a/>", "not one of the known kinds"),
        ("json_schema", "{", "Expecting"),
        ("json_schema", "[]", "must be a json object"),
        ("json_schema", "false", "must be a json object"),
        ("json_schema", "[" * 100_000, "nested too deeply"),
        ("choice", "[]", "list of texts"),
        ("choice", '["a", ""]', "list of texts"),
        ("regex", "a" * (MAX_SOURCE_CHARACTERS + 1), "characters"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused(kind: str, source: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason) as caught:
        guidance_grammar(Constraint(kind=kind, source=source, field="response_format"))
    assert (caught.value.param, caught.value.code) == ("response_format", "unsupported_constraint")
    assert str(caught.value).startswith("response_format cannot be honoured: ")
