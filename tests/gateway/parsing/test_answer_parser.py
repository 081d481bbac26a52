"""Tests the separation of reasoning, and answers with reasoning and calls."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.gateway.parsing.answer_parser import AnswerParser
from paceline.gateway.parsing.events import CallArguments, CallBegin, Content, Part, Reasoning
from paceline.gateway.parsing.reasoning import ReasoningFormat, ReasoningSplitter, detect_reasoning
from tests.gateway.parsing.parsed import TOOLS, format_named, parsed, parsed_pieces

THINK = ReasoningFormat("<think>", "</think>")
CALL = '<tool_call>\n{"name": "get", "arguments": {}}\n</tool_call>'


def _split(text: str, *, is_open: bool = False) -> list[Part]:
    return parsed(lambda: ReasoningSplitter(THINK, is_open=is_open), text)


def _answer(text: str, *, is_open: bool = False) -> list[Part]:
    def parser() -> AnswerParser:
        reasoning = ReasoningSplitter(THINK, is_open=is_open)
        return AnswerParser(reasoning=reasoning, calls=format_named("hermes").parser(TOOLS))

    return parsed(parser, text)


@pytest.mark.parametrize(
    ("text", "is_open", "expected"),
    [
        ("<think>\nA\n\nb\n</think>\n\nC\n", False, [Reasoning("A\n\nb"), Content("C\n")]),
        ("\n<think>A</think>C", False, [Reasoning("A"), Content("C")]),
        ("\nA <b\n</think>\n\nC", True, [Reasoning("A <b"), Content("C")]),
        ("<think>\nA</think>C", True, [Reasoning("A"), Content("C")]),
        ("<think>\n\n</think>\n\nC", False, [Content("C")]),
        ("</think>C", True, [Content("C")]),
        ("<think>\nA </thi", False, [Reasoning("A </thi")]),
        ("A\n", True, [Reasoning("A")]),
        ("<th", True, [Reasoning("<th")]),
        ("<th", False, [Content("<th")]),
        ("<think>A</think>\n ", False, [Reasoning("A")]),
        (" C <think>A</think>", False, [Content(" C <think>A</think>")]),
        ("<think>A</think>C<think>B</think>", False, [Reasoning("A"), Content("C<think>B</think>")]),
        ("", False, []),
    ],
)
def test_reasoning_is_separated(text: str, is_open: bool, expected: list[Part]) -> None:
    assert _split(text, is_open=is_open) == expected


def test_reasoning_is_given_out_at_once() -> None:
    splitter = ReasoningSplitter(THINK, is_open=True)
    assert splitter.push("A\n\n") == [Reasoning("A")]
    assert splitter.push("b</") == [Reasoning("\n\nb")]
    assert splitter.push("think> C") == [Content("C")]
    assert splitter.push("") == splitter.finish() == []


def test_reasoning_and_calls() -> None:
    assert _answer(f"<think>\nUse {CALL}?\n</think>\n\nOk.\n{CALL}\n{CALL}") == [
        Reasoning(f"Use {CALL}?"),
        Content("Ok.\n"),
        CallBegin(0, "get"),
        CallArguments(0, "{}"),
        CallBegin(1, "get"),
        CallArguments(1, "{}"),
    ]
    assert _answer(f"A</think>\n{CALL}", is_open=True) == [
        Reasoning("A"),
        CallBegin(0, "get"),
        CallArguments(0, "{}"),
    ]


def test_an_answer_may_lack_reasoning_or_end_within_a_marker() -> None:
    assert _answer("Hi") == [Content("Hi")]
    assert _answer("<thi") == [Content("<thi")]
    assert _answer("Hi <tool_") == [Content("Hi <tool_")]


def test_without_reasoning_and_calls_all_text_is_content() -> None:
    text = f"<think>A</think> {CALL}"
    assert parsed(AnswerParser, text) == [Content(text)]
    assert AnswerParser().push("") == []
    only_calls = AnswerParser(calls=format_named("hermes").parser(TOOLS))
    assert only_calls.push("<think>" + CALL) == [Content("<think>"), CallBegin(0, "get"), CallArguments(0, "{}")]


def test_neighbours_of_one_kind_are_joined() -> None:
    parser = AnswerParser(reasoning=ReasoningSplitter(THINK, is_open=False))
    assert parser.push("<think>ab c</think>de f") == [Reasoning("ab c"), Content("de f")]


PIECES = st.sampled_from(["<think>", "</think>", "\n", " ", "a", "<", CALL, "<tool_call>", "</"])


@settings(deadline=None, max_examples=50)
@given(pieces=st.lists(PIECES, max_size=6), is_open=st.booleans())
def test_the_result_does_not_depend_on_the_places_of_splits(pieces: list[str], is_open: bool) -> None:
    _answer("".join(pieces), is_open=is_open)


@settings(deadline=None)
@given(text=st.text(), is_open=st.booleans())
def test_nothing_is_lost(text: str, is_open: bool) -> None:
    parts = parsed_pieces(ReasoningSplitter(THINK, is_open=is_open), text)
    kind, expected = (Reasoning, text.strip("\n")) if is_open else (Content, text)
    assert parts == ([kind(expected)] if expected else [])


def test_detects_the_reasoning_of_a_template() -> None:
    assert detect_reasoning("{{ content.split('</think>')[-1] }}") == THINK
    assert detect_reasoning("{{ '[THINK]' + text + '[/THINK]' }}") == ReasoningFormat("[THINK]", "[/THINK]")
    assert detect_reasoning("{{ message.content }} <thinking>") is None


def test_without_parallel_calls_only_the_first_counts() -> None:
    def parser() -> AnswerParser:
        return AnswerParser(calls=format_named("hermes").parser(TOOLS), is_parallel=False)

    assert parsed(parser, CALL + "\n" + CALL) == [CallBegin(0, "get"), CallArguments(0, "{}")]


def test_json_without_markers_is_content_where_calls_need_them() -> None:
    def parser() -> AnswerParser:
        return AnswerParser(calls=format_named("hermes").parser(TOOLS, needs_markers=True))

    text = '{"name": "get", "age": 3}'
    assert parsed(parser, text) == [Content(text)]
    assert parsed(parser, CALL) == [CallBegin(0, "get"), CallArguments(0, "{}")]


def test_much_white_space_before_a_call_takes_little_time() -> None:
    parser = AnswerParser(calls=format_named("hermes").parser(TOOLS))
    assert parsed_pieces(parser, ["\n" * 200_000, CALL]) == [CallBegin(0, "get"), CallArguments(0, "{}")]
