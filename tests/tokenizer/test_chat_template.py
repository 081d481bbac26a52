"""Tests chat templates: real ones, the functions that they use, the sandbox, and errors that name the messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

import pytest

from paceline.core.errors import CheckpointError, InvalidRequestError
from paceline.tokenizer import Tokenizer
from paceline.tokenizer.chat_template import ChatTemplate
from tests.tokenizer.vocabulary_files import sentence_piece_metadata

USER = [{"role": "user", "content": "Hi"}]


def _render(source: str, messages: list[dict[str, object]] | None = None, **options: object) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(messages or USER, **options)


def test_the_template_of_smollm2(smollm2: Tokenizer) -> None:
    expected = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert smollm2.render_chat(USER) == expected
    assert smollm2.encode_chat(USER) == smollm2.encode(expected, parse_special=True)
    assert smollm2.encode_chat(USER)[0] == 1


def test_the_assistants_turn_may_be_left_out(smollm2: Tokenizer) -> None:
    assert smollm2.render_chat(USER, add_generation_prompt=False).endswith("Hi<|im_end|>\n")


@pytest.mark.parametrize("source", ["{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"])
def test_there_is_one_beginning_token_whoever_writes_it(source: str, smollm2_metadata: Mapping[str, object]) -> None:
    metadata = {**sentence_piece_metadata(smollm2_metadata), "tokenizer.chat_template": source}
    tokenizer = Tokenizer.from_metadata(metadata, None)
    assert tokenizer.encode_chat(USER) == [1, *tokenizer.encode("Hi", parse_special=True)]


def test_a_model_without_a_template_refuses_chats(sentence_piece: Tokenizer) -> None:
    assert not sentence_piece.has_chat_template
    with pytest.raises(InvalidRequestError, match="the model has no chat template; use /v1/completions") as caught:
        sentence_piece.encode_chat(USER)
    assert caught.value.param == "messages"


def test_blocks_leave_no_lines_behind() -> None:
    assert (
        _render("{% for message in messages %}\n    {% if true %}\n{{ message.role }}\n    {% endif %}\n{% endfor %}")
        == "user\n"
    )


def test_json_is_not_escaped_for_html() -> None:
    tools = [{"name": "a<b>&'é'"}]
    assert _render("{{ tools | tojson }}", tools=tools) == json.dumps(tools, ensure_ascii=False)
    assert _render("{{ tools | tojson(indent=2) }}", tools=tools) == json.dumps(tools, ensure_ascii=False, indent=2)


def test_text_is_not_escaped_for_html() -> None:
    assert _render("{{ messages[0]['content'] }}", [{"role": "user", "content": "<b> & 'c'"}]) == "<b> & 'c'"


def test_loops_have_break_and_continue() -> None:
    skip, stop = "{% if i == 1 %}{% continue %}{% endif %}", "{% if i == 4 %}{% break %}{% endif %}"
    assert _render("{% for i in range(9) %}" + skip + stop + "{{ i }}{% endfor %}") == "023"


def test_the_mark_of_generated_text_is_transparent() -> None:
    assert _render("a{% generation %}{{ messages[0].role }}{% endgeneration %}b") == "auserb"


def test_the_date_is_known() -> None:
    before = datetime.now().astimezone()
    assert _render("{{ strftime_now('%Y-%m-%d') }}") in {
        f"{day:%Y-%m-%d}" for day in (before, datetime.now().astimezone())
    }


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", r"roles must alternate"),
        ("{{ messages[0].content + 1 }}", "can only concatenate str"),
        ("{{ messages[0].content.missing.again }}", "has no attribute 'again'|has no attribute 'missing'"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe|not safely callable"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ range(10 ** 9) }}", "too big"),
        ("{{ 'x' * 3000000000 }}", "writes more than 67108864 characters"),
        ("{{ 4000000000000000000 * 'x' }}", "writes more than"),
        ("{{ 'x' | center(4000000000000000000) }}", "MemoryError"),
        ("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "writes more than"),
        ("{{ messages[0].get | tojson }}", "not JSON serializable"),
        ("{{ [1].missing() }}", "is undefined|has no attribute"),
    ],
)
def test_what_fails_in_a_template_is_the_requests_error(source: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        _render(source)
    assert str(caught.value).startswith("the model's chat template does not accept these messages (")
    assert str(caught.value).endswith("); change them")
    assert caught.value.param == "messages"


def test_the_template_cannot_change_the_messages() -> None:
    messages = [dict(message) for message in USER]
    with pytest.raises(InvalidRequestError):
        ChatTemplate("{{ messages[0].update({'content': 'x'}) }}", {}).render(messages)
    assert messages == USER


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("\n{% for %}", r"line 2: Expected an expression, got 'end of statement block'"),
        ("{{ messages | nothing }}", r"line 1: No filter named 'nothing'"),
        ("{% break %}", r"'break' outside loop"),
        ("{% for a in b %}" * 25 + "{% endfor %}" * 25, r"too many statically nested blocks"),
        ("{% if a %}" * 9999 + "{% endif %}" * 9999, r"maximum recursion depth exceeded"),
        ("{{ 10 ** 100000000 }}", r"takes longer than 0\.5 s to compile"),
    ],
    ids=["syntax", "filter", "break", "loops", "depth", "power"],
)
def test_a_template_that_does_not_compile_is_the_model_files_error(source: str, reason: str) -> None:
    template = ChatTemplate(source, {}, timeout_s=0.5 if "**" in source else 60.0)
    for use in (template.prepare, lambda: template.render(USER)):
        with pytest.raises(CheckpointError, match=reason) as caught:
            use()
        assert str(caught.value).startswith("the model's chat template ")
        assert str(caught.value).endswith("; use another model file")


def test_a_tokenizer_refuses_a_template_that_does_not_compile(smollm2_metadata: Mapping[str, object]) -> None:
    tokenizer = Tokenizer.from_metadata({**smollm2_metadata, "tokenizer.chat_template": "{% for %}"}, None)
    with pytest.raises(CheckpointError, match="does not compile"):
        tokenizer.prepare_chats()


def test_a_model_without_a_template_has_nothing_to_prepare(sentence_piece: Tokenizer) -> None:
    sentence_piece.prepare_chats()
    sentence_piece.close()


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes"])
def test_what_is_no_json_is_refused(value: object) -> None:
    message = "the chat template can be given JSON values only .*not JSON serializable"
    with pytest.raises(InvalidRequestError, match=message) as caught:
        _render("", documents=value)
    assert caught.value.param == "messages"
    with pytest.raises(InvalidRequestError, match=message):
        _render("", [{"role": "user", "content": value}])


def test_values_without_an_end_are_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(InvalidRequestError, match="Circular reference"):
        _render("", documents=endless)


def test_mappings_and_tuples_are_json() -> None:
    messages = (MappingProxyType({"role": "user", "content": "Hi"}),)
    source = "{{ messages[0].content }}{{ documents | tojson }}"
    documents = (1, MappingProxyType({"a": None}))
    assert ChatTemplate(source, {}).render(messages, documents=documents) == 'Hi[1, {"a": null}]'


@pytest.mark.parametrize("text", ["", "é中😀", "half \ud83d of a pair", "\x00\x1f\u2028", "\ud83d\ude00"])
def test_any_text_comes_back_as_it_was_given(text: str) -> None:
    assert _render("{{ messages[0].content }}", [{"role": "user", "content": text}]) == text
