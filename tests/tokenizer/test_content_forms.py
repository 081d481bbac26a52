"""Text parts and strings reach every template in a form that it shows, however it treats the other forms."""

from __future__ import annotations

import pytest

from paceline.core.errors import InvalidRequestError
from paceline.tokenizer.chat_template import ChatTemplate

Content = str | list[dict[str, object]]


def _each(body: str) -> str:
    return "{% for m in messages %}<{{ m.role }}>" + body + "{% endfor %}"


def _parts(variable: str = "m.content") -> str:
    return "{% for part in " + variable + " %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"


ADDS = _each("{{ m.content + '!' }}")
PRINTS = _each("{{ m.content }}")
TRIMS = _each("{{ m.content | trim }}")
DUMPS = _each("{{ m.content | tojson }}")
DUMPS_PARTS = _each(
    "{% if m.content is string %}{{ m.content }}{% else %}{{ m.content | tojson(indent=1) }}{% endif %}"
)
DUMPS_MESSAGES = "{{ messages | tojson }}"
WALKS_CHARACTERS = _each("{% for c in m.content %}{{ c }}{% endfor %}")
LOOPS = _each(_parts())
LOOPS_AND_CHECKS = _each(
    "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text | trim }}"
    "{% else %}{{ raise_exception('no such part') }}{% endif %}{% endfor %}"
)
MAPS = _each("{{ m.content | map(attribute='text') | join }}")
FIRST_PART = _each("{{ m.content[0].text }}")
STRING_TEST = _each("{% if m.content is string %}{{ m.content }}{% else %}" + _parts() + "{% endif %}")
ITERABLE_TEST = _each(
    "{% if m.content is iterable and m.content is not string %}" + _parts() + "{% else %}{{ m.content }}{% endif %}"
)
STRING_OR_FIRST_PART = _each("{{ m.content if m.content is string else m.content[0].text }}")
BACKWARDS = _each(
    "{% if m.content is string %}{{ m.content }}{% else %}" + _parts("m.content | reverse") + "{% endif %}"
)


def _text(*texts: str) -> list[dict[str, object]]:
    return [{"type": "text", "text": text} for text in texts]


def _render(source: str, *messages: dict[str, object]) -> str:
    return ChatTemplate(source, {}).render(messages)


@pytest.mark.parametrize(
    ("source", "one", "several"),
    [
        (ADDS, "<user>a!", "<user>a\nb!"),
        (PRINTS, "<user>a", "<user>a\nb"),
        (TRIMS, "<user>a", "<user>a\nb"),
        (DUMPS, '<user>"a"', '<user>"a\\nb"'),
        (DUMPS_PARTS, "<user>a", "<user>a\nb"),
        (DUMPS_MESSAGES, '[{"role": "user", "content": "a"}]', '[{"role": "user", "content": "a\\nb"}]'),
        (WALKS_CHARACTERS, "<user>a", "<user>a\nb"),
        (LOOPS, "<user>a", "<user>ab"),
        (LOOPS_AND_CHECKS, "<user>a", "<user>ab"),
        (MAPS, "<user>a", "<user>ab"),
        (FIRST_PART, "<user>a", "<user>a\nb"),
        (STRING_TEST, "<user>a", "<user>ab"),
        (ITERABLE_TEST, "<user>a", "<user>ab"),
        (STRING_OR_FIRST_PART, "<user>a", "<user>a\nb"),
        (BACKWARDS, "<user>a", "<user>a\nb"),
    ],
)
def test_each_form_of_content_is_shown_by_each_template(source: str, one: str, several: str) -> None:
    template = ChatTemplate(source, {})
    contents: list[Content] = ["a", _text("a"), _text("a", "b")]
    texts = [template.render([{"role": "user", "content": content}]) for content in contents]
    assert texts == [one, one, several]


@pytest.mark.parametrize("source", [PRINTS, LOOPS, STRING_TEST, ITERABLE_TEST])
@pytest.mark.parametrize("content", ["", [], _text("")])
def test_an_empty_content_is_an_empty_text(source: str, content: Content) -> None:
    assert _render(source, {"role": "user", "content": content}) == "<user>"


def test_each_role_has_a_form_of_its_own() -> None:
    source = (
        "{% for m in messages %}<{{ m.role }}>{% if m.role == 'system' %}{{ m.content + '' }}"
        "{% elif m.role == 'user' %}" + _parts() + "{% elif m.content is string %}{{ m.content }}"
        "{% else %}" + _parts() + "{% endif %}{% endfor %}"
    )
    strings = [(role, "a") for role in ("system", "user", "assistant", "user")]
    lists = [(role, _text("a", "b")) for role in ("system", "user", "assistant", "user")]
    template = ChatTemplate(source, {})
    assert _chat(template, strings) == "<system>a<user>a<assistant>a<user>a"
    assert _chat(template, lists) == "<system>a\nb<user>ab<assistant>ab<user>ab"


def _chat(template: ChatTemplate, messages: list[tuple[str, str]] | list[tuple[str, list[dict[str, object]]]]) -> str:
    return template.render([{"role": role, "content": content} for role, content in messages])


ALTERNATING = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system messages') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}<{{ m.role }}>" + _parts() + "{% endfor %}"
)
LAST_IS_USER = (
    "{% if messages[-1].role != 'user' %}{{ raise_exception('the last message must be a question') }}{% endif %}"
    + LOOPS
)
NEEDS_SYSTEM = "{% if messages[0].role != 'system' %}{{ raise_exception('who am I?') }}{% endif %}"


@pytest.mark.parametrize(
    ("source", "roles", "expected"),
    [
        (ALTERNATING, ["user"], "<user>ab"),
        (ALTERNATING, ["user", "assistant", "user"], "<user>ab<assistant>ab<user>ab"),
        (LAST_IS_USER, ["system", "user", "assistant", "user"], "<system>ab<user>ab<assistant>ab<user>ab"),
        (NEEDS_SYSTEM + LOOPS, ["system", "user"], "<system>ab<user>ab"),
        (NEEDS_SYSTEM + LOOPS_AND_CHECKS, ["system", "user"], "<system>ab<user>ab"),
    ],
)
def test_templates_that_insist_on_an_order_are_understood(source: str, roles: list[str], expected: str) -> None:
    template = ChatTemplate(source, {})
    assert _chat(template, [(role, _text("a", "b")) for role in roles]) == expected
    assert _chat(template, [(role, "ab") for role in roles]) == expected


def test_a_refusal_keeps_its_words() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        _render(ALTERNATING, {"role": "system", "content": "a"})
    expected = "the model's chat template does not accept these messages (no system messages); change them"
    assert str(caught.value) == expected


def _tools(check: str, shown: str) -> str:
    return (
        "{% for m in messages %}{% if m.role == 'tool' %}"
        "{% set call = (messages[loop.index0 - 1].tool_calls or [none])[0] %}"
        + check
        + "({{ m.name }} "
        + shown
        + "){% else %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
    )


@pytest.mark.parametrize(
    "check",
    [
        "",
        "{% if call.function.arguments is string %}{{ raise_exception('give me a mapping') }}{% endif %}",
        "{% if call.function.arguments is mapping %}{{ raise_exception('give me JSON') }}{% endif %}",
        "{% if not call %}{{ raise_exception('nobody called') }}{% endif %}",
        "{% if call.id | length != 9 or m.tool_call_id != call.id %}{{ raise_exception('bad id') }}{% endif %}",
        "{% if loop.last %}{{ raise_exception('answer me') }}{% endif %}",
        "{% if call %}{{ raise_exception('no calls') }}{% endif %}",
    ],
)
@pytest.mark.parametrize(
    ("shown", "expected"),
    [("{{ m.content + '' }}", "a\nb"), (_parts(), "ab"), ("{{ m.content | tojson }}", '"a\\nb"')],
)
def test_results_of_tools_are_shown(check: str, shown: str, expected: str) -> None:
    arguments: object = '{"x": 1}' if "JSON" in check else {"x": 1}
    call = {"id": "callABC12", "type": "function", "function": {"name": "f", "arguments": arguments}}
    calls = {} if "no calls" in check else {"tool_calls": [call]}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", **calls},
        {"role": "tool", "name": "f", "tool_call_id": "callABC12", "content": _text("a", "b")},
        {"role": "assistant", "content": "Done"},
    ]
    assert _render(_tools(check, shown), *messages) == f"<user>Hi<assistant>(f {expected})<assistant>Done"


def test_a_role_that_no_probe_knows_is_given_strings() -> None:
    assert _render(PRINTS, {"role": "critic", "content": _text("a", "b")}) == "<critic>a\nb"


def test_other_parts_than_texts_reach_a_template_as_they_are() -> None:
    source = _each(
        "{% for part in m.content %}{{ part.text if part.type == 'text' else '[' ~ part.type ~ ']' }}{% endfor %}"
    )
    content = [{"type": "image"}, *_text("a")]
    assert _render(source, {"role": "user", "content": content}) == "<user>[image]a"


def test_other_keys_of_parts_reach_a_template_that_takes_parts() -> None:
    parts = [{"type": "text", "text": text, "language": "en"} for text in ("a", "b")]
    source = _each("{% for part in m.content %}{{ part.text }}{{ part.language }}{% endfor %}")
    assert _render(source, {"role": "user", "content": parts}) == "<user>aenben"


def test_a_template_that_is_too_slow_to_be_probed_is_given_strings() -> None:
    pause = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    template = ChatTemplate("{% if not quick %}" + pause + "{% endif %}" + PRINTS, {}, timeout_s=0.5)
    template.prepare()
    assert template.render([{"role": "user", "content": _text("a", "b")}], quick=True) == "<user>a\nb"
