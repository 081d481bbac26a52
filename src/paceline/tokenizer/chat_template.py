"""`ChatTemplate`: turns messages into the prompt text that a chat model was trained on.

Templates come with the model and are not trusted: they run in jinja2's sandbox, with the functions and options that
chat templates are written for (Hugging Face `transformers`, "Chat templates").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from datetime import datetime
from functools import cached_property

from jinja2 import Template, TemplateError, TemplateRuntimeError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from paceline.core.errors import InvalidRequestError

_ERRORS_IN_TEMPLATES = (
    TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)
_MAX_CHARACTERS = 2**26


class ChatTemplate:
    """A compiled template; `variables` are visible in every rendering (such as `bos_token`)."""

    def __init__(self, source: str, variables: Mapping[str, object]) -> None:
        self._source = source
        self._variables = variables

    def render(self, messages: Sequence[Mapping[str, object]], **options: object) -> str:
        """The prompt for `messages`, by default up to where the assistant's answer begins.

        Raises InvalidRequestError where the template refuses the messages, fails on them, or writes too much.
        """
        context = {**self._variables, "add_generation_prompt": True, "tools": None, "documents": None, **options}
        try:
            return "".join(_bounded(self._template.generate(messages=messages, **context)))
        except _ERRORS_IN_TEMPLATES as error:
            reason = str(error) or type(error).__name__
            raise InvalidRequestError(
                f"the model's chat template does not accept these messages ({reason}); change them", param="messages"
            ) from error

    @cached_property
    def _template(self) -> Template:
        return _environment().from_string(self._source)


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
    """Checks a product's length before it is made."""

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
    """JSON as models are trained on it, without jinja2's escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateRuntimeError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().astimezone().strftime(format)
