"""`ChatTemplate`: turns messages into the prompt text that a chat model was trained on.

Templates come with the model and are not trusted: they run in jinja2's sandbox, with the functions and options that
chat templates are written for (Hugging Face `transformers`, "Chat templates").
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property

from jinja2 import Template, TemplateError, TemplateRuntimeError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
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
)


class ChatTemplate:
    """A compiled template; `variables` are visible in every rendering (such as `bos_token`)."""

    def __init__(self, source: str, variables: Mapping[str, object]) -> None:
        self._source = source
        self._variables = variables

    def render(self, messages: Sequence[Mapping[str, object]], **options: object) -> str:
        """The prompt for `messages`, by default up to where the assistant's answer begins.

        Raises InvalidRequestError where the template refuses the messages or fails on them.
        """
        context = {**self._variables, "add_generation_prompt": True, "tools": None, "documents": None, **options}
        try:
            return self._template.render(messages=messages, **context)
        except _ERRORS_IN_TEMPLATES as error:
            raise InvalidRequestError(
                f"the model's chat template does not accept these messages ({error}); change them", param="messages"
            ) from error

    @cached_property
    def _template(self) -> Template:
        return _environment().from_string(self._source)


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's text for training; its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it as an instance variable)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag]
    )
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
