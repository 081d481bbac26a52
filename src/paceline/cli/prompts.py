"""Turns what the user typed into token ids before weights are loaded, so a bad prompt is refused within a second."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from paceline.core import Request, SamplingParams
from paceline.core.errors import ContextOverflowError, InvalidRequestError, UsageError
from paceline.engine.open_models import OpenModel
from paceline.sampling import RequestLimits, check_request

STANDARD_INPUT = "-"

Message = dict[str, str]


def read_text(argument: str) -> str:
    """Returns the argument, or all of standard input if the argument is `-`. Raises UsageError if that is not UTF-8."""
    if argument != STANDARD_INPUT:
        return argument
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8 text from byte {error.start} on; convert it") from error


def opening(system: str | None) -> list[Message]:
    """Returns the messages that come before the first question."""
    return [] if system is None else [{"role": "system", "content": system}]


def encode_prompt(target: OpenModel, text: str, system: str | None, *, is_raw: bool) -> list[int]:
    """Returns the token ids of one question in the model's chat format.

    If `is_raw`, or if the model has no chat template, the token ids are those of the text itself. Raises UsageError if
    the template refuses the chat, or if there is no template for `system`.
    """
    if not is_raw and target.tokenizer.has_chat_template:
        messages = [*opening(system), {"role": "user", "content": text}]
        check_chats(target, [messages])
        return target.tokenizer.encode_chat(messages)
    if system is not None:
        raise UsageError(f"--system needs a chat template, which {target.name} does not have; leave it out")
    return target.tokenizer.encode_prompt(text)


def check_chats(
    target: OpenModel, chats: Iterable[Sequence[Message]], advice: str = "choose a model made for chats"
) -> None:
    """Raises UsageError if the model has no chat template, or if its template refuses one of `chats`.

    `advice` ends the message about a missing template.
    """
    if not target.tokenizer.has_chat_template:
        raise UsageError(f"{target.name} has no chat template; {advice}")
    for messages in chats:
        try:
            target.tokenizer.render_chat(messages)
        except InvalidRequestError as error:
            raise UsageError(str(error)) from error


def check_answerable(token_ids: list[int], sampling: SamplingParams, limits: RequestLimits) -> None:
    """Raises ContextOverflowError if the prompt leaves no room for an answer, and UsageError for any other fault."""
    try:
        check_request(Request(request_id="", prompt_token_ids=token_ids, sampling=sampling), limits)
    except ContextOverflowError:
        raise
    except InvalidRequestError as error:
        raise UsageError(str(error)) from error
