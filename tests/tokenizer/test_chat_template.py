"""Chat templates: real ones, the functions they use, the sandbox, and errors that name the messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

import pytest

from paceline.core.errors import InvalidRequestError
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
        ("{% for %}", "Expected"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe|not safely callable"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ range(10 ** 9) }}", "too big"),
        ("{{ 'x' * 3000000000 }}", "writes more than 67108864 characters"),
        ("{{ 4000000000000000000 * 'x' }}", "writes more than"),
        ("{{ 'x' | center(4000000000000000000) }}", "MemoryError"),
        ("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "writes more than"),
        ("{{ tools | tojson }}", "not JSON serializable"),
    ],
)
def test_what_fails_in_a_template_is_the_requests_error(source: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        _render(source, tools=object())
    assert caught.value.param == "messages"


def test_the_template_cannot_change_the_messages() -> None:
    messages = [dict(message) for message in USER]
    with pytest.raises(InvalidRequestError):
        ChatTemplate("{{ messages[0].update({'content': 'x'}) }}", {}).render(messages)
    assert messages == USER
