"""The program that compiles and renders one chat template, in a process of its own; `template_process` starts it.

Templates come with the model and are not trusted. They run in jinja2's sandbox, with the functions and options that
chat templates are written for (Hugging Face `transformers`, "Chat templates"), under limits of memory, time and length.
The file is run by its path and imports only jinja2 and the standard library, which keeps its process small.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from datetime import datetime
from functools import partial

from jinja2 import Template, TemplateError, TemplateRuntimeError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

_ERRORS_IN_TEMPLATES = (
    TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    SyntaxError,
    MemoryError,
)
_MAX_CHARACTERS = 2**26
# The largest body of a call, 16 MiB, can hold a text that takes 64 MiB in memory. The limit is eight times that: a
# template may hold a few copies of it, and four processes at their limit take no more than 2 GiB.
_MAX_MEMORY_BYTES = 2**29
_ORPHAN_GRACE_S = 1.0  # lets a living parent end the process first, so that the parent knows why it ended
_FRAME_LENGTH = struct.Struct("<Q")
_TEXT = b"+"
_REASON = b"-"


def main() -> None:
    """Serves the parent on standard input and output, which are one socket, until the parent closes it.

    A frame is the length of its payload (8 bytes, little endian) and the payload. The program first sends an empty
    reply, to say that it runs. The first request is a JSON object of `source`, the template, and `timeout_s`; the
    others are JSON objects of the template's variables. A reply is `+` and the text, or `-` and the reason why there is
    none.
    """
    _set_limits()
    _send(_TEXT)
    setup = json.loads(_receive())
    timeout_s: float = setup["timeout_s"]
    renderer = _Renderer(setup["source"])
    _send(_reply(renderer.compile, timeout_s))
    while True:
        _send(_reply(partial(renderer.render, _receive()), timeout_s))


class _Renderer:
    """Compiles one template, and renders its texts in pieces."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._environment = _environment()
        self._template = Template("")

    def compile(self) -> Iterable[str]:
        """Compiles the template, which `render` needs; returns no text."""
        self._template = self._environment.from_string(self._source)
        return ()

    def render(self, variables: bytes) -> Iterable[str]:
        """Returns the pieces of the text for a JSON object of variables."""
        pieces: Iterable[str] = self._template.generate(json.loads(variables))
        return pieces


def _set_limits() -> None:
    """Limits the process's memory, and makes the alarm of `_reply` end it whatever signal handling it inherited."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
    limit = _MAX_MEMORY_BYTES if hard_limit == resource.RLIM_INFINITY else min(_MAX_MEMORY_BYTES, hard_limit)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _receive() -> bytes:
    """Returns the payload of the next frame; ends the process if the parent has closed the socket."""
    try:
        header = sys.stdin.buffer.read(_FRAME_LENGTH.size)
        if len(header) == _FRAME_LENGTH.size:
            return sys.stdin.buffer.read(_FRAME_LENGTH.unpack(header)[0])
    except ConnectionError:
        pass
    os._exit(0)


def _send(payload: bytes | bytearray) -> None:
    try:
        sys.stdout.buffer.write(_FRAME_LENGTH.pack(len(payload)))
        sys.stdout.buffer.write(payload)
        sys.stdout.buffer.flush()
    except ConnectionError:
        os._exit(0)


def _reply(work: Callable[[], Iterable[str]], timeout_s: float) -> bytes | bytearray:
    """Returns the payload of a reply: the text that `work` gives in pieces, or the reason why it fails.

    The parent ends a process that takes too long. If the parent is gone, the alarm does: its default action ends the
    process even during a call that holds the interpreter.
    """
    signal.setitimer(signal.ITIMER_REAL, timeout_s + _ORPHAN_GRACE_S)
    try:
        payload = bytearray(_TEXT)
        for piece in _bounded(work()):
            payload += piece.encode("utf-8", "surrogatepass")
        return payload
    except _ERRORS_IN_TEMPLATES as error:
        return _REASON + _reason(error).encode("utf-8", "surrogatepass")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _reason(error: BaseException) -> str:
    if isinstance(error, TemplateSyntaxError):
        return f"line {error.lineno}: {error.message}"
    if isinstance(error, SyntaxError):
        return error.msg  # without its line, which is one of the code that jinja2 generated
    return str(error) or type(error).__name__


def _bounded(pieces: Iterable[str]) -> Iterator[str]:
    num_characters = 0
    for piece in pieces:
        num_characters += len(piece)
        _check_length(num_characters)
        yield piece


def _check_length(num_characters: int) -> None:
    if num_characters > _MAX_CHARACTERS:
        raise TemplateRuntimeError(f"it writes more than {_MAX_CHARACTERS} characters")


class _Sandbox(ImmutableSandboxedEnvironment):
    """Checks the length of a repeated text or list (`text * count`) before it is made."""

    intercepted_binops = frozenset({"*"})

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        for text, count in ((left, right), (right, left)):
            if isinstance(text, Sized) and isinstance(count, int):
                _check_length(len(text) * count)
        return super().call_binop(context, operator, left, right)


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's text for training; its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it as an instance variable)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Returns JSON as models are trained on it, without jinja2's escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateRuntimeError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().astimezone().strftime(format)


if __name__ == "__main__":
    main()
