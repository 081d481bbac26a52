"""Tests the processes that render chat templates: when they end, what they inherit, and what a fork does."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.core.errors import CheckpointError
from paceline.tokenizer.chat_template import ChatTemplate
from tests.gateway.server_process import is_alive, wait_until
from tests.tokenizer.template_processes import template_processes

USER = [{"role": "user", "content": "Hi"}]
SCRIPT_HEAD = """
import os, sys
from paceline.tokenizer.chat_template import ChatTemplate

messages = [{"role": "user", "content": "Hi"}]
ENDLESS = "{% if attacks %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}"
template = ChatTemplate(ENDLESS + "{{ messages[-1].content }}", {}, timeout_s=float(sys.argv[1]))
print(template.render(messages), flush=True)
"""


def _run(script: str, timeout_s: float = 60.0) -> subprocess.Popen[str]:
    """Starts the script in a process in which warnings are errors."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-X", "dev", "-c", SCRIPT_HEAD + script, str(timeout_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def children() -> set[int]:
    """Returns the processes of templates that other tests keep."""
    gc.collect()
    return template_processes()


def test_processes_end_with_their_template(children: set[int]) -> None:
    template = ChatTemplate("{{ messages[-1].content }}", {})
    assert template.render(USER) == "Hi"
    assert len(template_processes() - children) == 1
    del template
    gc.collect()
    assert template_processes() <= children


def test_a_closed_template_renders_again(children: set[int]) -> None:
    template = ChatTemplate("{{ messages[-1].content }}", {})
    for _ in range(2):
        assert template.render(USER) == "Hi"
        template.close()
        assert template_processes() <= children


def test_no_file_stays_open() -> None:
    gc.collect()
    before = _num_open_files()
    template = ChatTemplate("{{ messages[-1].content }}", {})
    template.prepare()
    template.close()
    with pytest.raises(CheckpointError):
        ChatTemplate("{% for %}", {}).prepare()
    assert _num_open_files() == before


def _num_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_process_that_the_system_ended_is_replaced(children: set[int]) -> None:
    template = ChatTemplate("{{ messages[-1].content }}", {})
    template.prepare()
    (process_id,) = template_processes() - children
    os.kill(process_id, signal.SIGKILL)
    wait_until(lambda: not is_alive(process_id), "the process has ended")
    assert template.render(USER) == "Hi"


def test_processes_end_with_the_interpreter_without_a_word() -> None:
    with _run("") as process:
        assert process.communicate() == ("Hi\n", "")
    assert process.returncode == 0


@pytest.mark.parametrize("options", ["", "attacks=True"], ids=["idle", "rendering"])
def test_processes_end_with_a_parent_that_is_killed(options: str) -> None:
    script = "print(flush=True)\n" + (f"template.render(messages, {options})" if options else "sys.stdin.read()")
    with _run(script, timeout_s=1.0) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["Hi\n", "\n"]
        (renderer,) = template_processes(process.pid)
        process.kill()
        wait_until(lambda: not is_alive(renderer), "the process has ended")


def test_little_of_the_environment_is_inherited(monkeypatch: pytest.MonkeyPatch, children: set[int]) -> None:
    monkeypatch.setenv("A_SECRET_KEY", "7d1f")
    template = ChatTemplate("", {})
    template.prepare()
    (process_id,) = template_processes() - children
    environment = Path(f"/proc/{process_id}/environ").read_bytes()
    assert b"A_SECRET_KEY" not in environment
    assert {line.partition(b"=")[0] for line in environment.split(b"\0") if line} <= {
        b"LD_LIBRARY_PATH",
        b"PYTHONHOME",
        b"PYTHONPATH",
        b"TZ",
        b"TZDIR",
    }
    template.close()


def test_the_local_time_is_the_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-5:30")
    assert ChatTemplate("{{ strftime_now('%z') }}", {}).render(USER) == "+0530"


def test_a_fork_renders_in_processes_of_its_own() -> None:
    script = """
child = os.fork()
name = "parent" if child else "child"
texts = {template.render([{"role": "user", "content": name}]) for _ in range(300)}
assert texts == {name}, texts
if child:
    assert os.waitpid(child, 0)[1] == 0
    print(template.render(messages))
"""
    with _run(script) as process:
        assert process.communicate() == ("Hi\nHi\n", "")
    assert process.returncode == 0


def test_an_interrupt_from_the_terminal_does_not_reach_the_processes(children: set[int]) -> None:
    template = ChatTemplate("{{ messages[-1].content }}", {})
    template.prepare()
    (process_id,) = template_processes() - children
    assert os.getpgid(process_id) != os.getpgid(0)
