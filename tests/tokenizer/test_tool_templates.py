"""Chats with tools, calls, results and reasoning are rendered as Hugging Face `transformers` renders them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import Tokenizer as Encoder
from tokenizers.models import WordLevel

from paceline.tokenizer import Tokenizer
from tests.tokenizer.tool_templates import CASES, TOOL, Case
from tests.tokenizer.vocabulary_files import tokenizer_metadata

SMALL: dict[str, object] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["a", "<s>", "</s>"],
    "tokenizer.ggml.merges": [],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}

Render = Callable[[Case], str]


@pytest.fixture(scope="module")
def reference() -> Render:
    """Returns a function that renders what a case expects with transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import PreTrainedTokenizerFast
    encoder = Encoder(WordLevel({"a": 0, "<s>": 1, "</s>": 2}, unk_token="a"))
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=encoder, bos_token="<s>", eos_token="</s>")

    def render(case: Case) -> str:
        sources = {"default": case.source, "tool_use": case.tool_source}
        tokenizer.chat_template = case.source if case.tool_source is None else sources
        tools = case.tools if case.expected_tools is None else case.expected_tools
        text = tokenizer.apply_chat_template(
            case.expected, tools=tools, tokenize=False, add_generation_prompt=True, **case.options
        )
        assert isinstance(text, str)
        return text

    return render


def _tokenizer(case: Case) -> Tokenizer:
    sources = {"tokenizer.chat_template": case.source}
    if case.tool_source is not None:
        sources["tokenizer.chat_template.tool_use"] = case.tool_source
    return Tokenizer.from_metadata({**tokenizer_metadata(SMALL), **sources}, None)


@pytest.mark.parametrize("name", CASES)
def test_a_chat_is_rendered_as_transformers_does(name: str, reference: Render) -> None:
    case = CASES[name]
    tokenizer = _tokenizer(case)
    text = tokenizer.render_chat(case.given, case.tools, **case.options)
    tokenizer.close()
    assert text == reference(case)


def test_the_templates_are_known() -> None:
    one = _tokenizer(Case("a"))
    assert (one.chat_template_source, one.tool_template_source) == ("a", "a")
    two = _tokenizer(Case("a", tool_source="b"))
    assert (two.chat_template_source, two.tool_template_source) == ("a", "b")
    none = Tokenizer.from_metadata(SMALL, None)
    assert (none.chat_template_source, none.tool_template_source) == (None, None)


def test_no_tools_and_an_empty_list_of_tools_are_the_same() -> None:
    tokenizer = _tokenizer(Case("{{ tools is none }}", tool_source="{{ tools[0].function.name }}"))
    chat = [{"role": "user", "content": "Hi"}]
    assert [tokenizer.render_chat(chat, tools) for tools in (None, [], [TOOL])] == ["True", "True", "weather"]
    tokenizer.close()
