"""Chat templates that need too much: memory, time and length are limited, and other renderings go on."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from paceline.core.errors import InvalidRequestError
from paceline.tokenizer.chat_template import ChatTemplate
from tests.gateway.server_process import wait_until
from tests.tokenizer.template_processes import resident_bytes, template_processes

USER = [{"role": "user", "content": "Hi"}]
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
DOUBLING = "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x OPERATOR ns.x %}{% endfor %}"


def _template(attack: str, timeout_s: float = 60.0) -> ChatTemplate:
    """Returns a template that writes the last message, and runs the attack if the option `attacks` is set."""
    source = "{% if attacks %}" + attack + "{% endif %}{{ messages[-1].content }}"
    return ChatTemplate(source, {}, timeout_s=timeout_s)


@pytest.mark.parametrize(
    "attack",
    [
        "{{ 'x'.ljust(10 ** 12) }}",
        "{{ 'x' | center(10 ** 12) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '%*d' | format(10 ** 9, 1) }}",
        "{{ messages | tojson(indent=10 ** 9) }}",
        "{{ ('x' * 60000).replace('x', 'y' * 60000) | length }}",
        "{{ ('y' * 60000).join('x' * 60000) | length }}",
        "{{ (['x' * 60000000] * 99) | join | length }}",
        DOUBLING.replace("OPERATOR", "~"),
        DOUBLING.replace("OPERATOR", "+"),
        "{% set ns = namespace(x=[0]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[0]) %}{% for i in range(60) %}{% set ns.x = ns.x * 4 %}{% endfor %}",
    ],
)
def test_memory_is_bounded(attack: str) -> None:
    template = _template(attack)
    with pytest.raises(
        InvalidRequestError, match=r"does not accept these messages \((MemoryError|it writes more than)"
    ):
        template.render(USER, attacks=True)
    assert template.render(USER) == "Hi"


@pytest.mark.parametrize(
    "attack",
    [
        ENDLESS,
        "{% set ns = namespace(n=1) %}"
        + "{% for i in range(ns.n) %}{% set ns.n = ns.n * 2 %}" * 3
        + "{% endfor %}" * 3
        + ENDLESS,
        "{% macro twice(n) %}{% if n %}{{ twice(n - 1) }}{{ twice(n - 1) }}{% endif %}{% endmacro %}{{ twice(99) }}",
        "{% if (messages | length + 9) ** 100000000 %}{% endif %}",
    ],
    ids=["loops", "growing", "macros", "power"],
)
def test_time_is_bounded(attack: str) -> None:
    template = _template(attack, timeout_s=0.5)
    with pytest.raises(InvalidRequestError) as caught:
        template.render(USER, attacks=True)
    message = "the model's chat template takes longer than 0.5 s for these messages; send fewer or shorter ones"
    assert (str(caught.value), caught.value.param) == (message, "messages")
    assert template.render(USER) == "Hi"


def test_a_long_text_within_the_bounds_is_written() -> None:
    text = "\U0001f600" * 2**20
    assert _template("").render([{"role": "user", "content": text}]) == text


def test_slow_renderings_leave_room_for_others() -> None:
    template = _template(ENDLESS)
    before = template_processes()
    errors: list[str] = []

    def attack() -> None:
        with pytest.raises(InvalidRequestError) as caught:
            template.render(USER, attacks=True)
        errors.append(str(caught.value))

    threads = [threading.Thread(target=attack) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(template_processes() - before) == 3, "three renderings have begun")
    assert [template.render(USER) for _ in range(9)] == ["Hi"] * 9
    assert errors == []

    def are_ended() -> bool:
        template.close()  # repeated, because a rendering may start after an earlier close
        return not any(thread.is_alive() for thread in threads)

    wait_until(are_ended, "the slow renderings have failed")
    message = "the model's chat template ends its process (signal SIGKILL) on these messages; change them"
    assert errors == [message] * 3


def test_as_many_callers_as_come_are_answered_by_few_processes() -> None:
    before = template_processes()
    template = _template("")
    contents = [str(number) * 1000 for number in range(400)]
    with ThreadPoolExecutor(16) as threads:
        texts = list(threads.map(lambda content: template.render([{"role": "user", "content": content}]), contents))
        assert texts == contents
        assert 1 <= len(template_processes() - before) <= 4
    template.close()


def test_a_process_that_grew_large_is_not_kept() -> None:
    before = template_processes()
    template = _template("{{ (range(99999) | map('string') | list * 300) | length }}")
    assert template.render(USER, attacks=True) == f"{99999 * 300}Hi"
    assert sum(map(resident_bytes, template_processes() - before)) < 2**26
    assert template.render(USER) == "Hi"


def test_an_interrupted_rendering_gives_no_text_to_the_next_one() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    template = _template(ENDLESS)
    assert template.render(USER) == "Hi"
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            template.render(USER, attacks=True)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert template.render([{"role": "user", "content": "next"}]) == "next"
