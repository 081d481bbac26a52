"""From what the user typed to token ids, all of it before weights are loaded: what cannot be answered is refused within
a second, and as a wrong use."""

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
    """The argument, or all of standard input where it says so, line ends unchanged. Raises UsageError."""
    if argument != STANDARD_INPUT:
        return argument
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8 text from byte {error.start} on; convert it") from error


def opening(system: str | None) -> list[Message]:
    """The messages before the first question."""
    return [] if system is None else [{"role": "system", "content": system}]


def encode_prompt(target: OpenModel, text: str, system: str | None, *, is_raw: bool) -> list[int]:
    """Token ids of one question in the model's chat format, or of the text itself for a model that has none.

    Raises UsageError.
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
    """Raises UsageError, with advice, where the model has no chat template, or one that refuses one of `chats`."""
    if not target.tokenizer.has_chat_template:
        raise UsageError(f"{target.name} has no chat template; {advice}")
    for messages in chats:
        try:
            target.tokenizer.render_chat(messages)
        except InvalidRequestError as error:
            raise UsageError(str(error)) from error


def check_answerable(token_ids: list[int], sampling: SamplingParams, limits: RequestLimits) -> None:
    """Raises ContextOverflowError for a prompt that leaves no room for an answer, UsageError for anything else."""
    try:
        check_request(Request(request_id="", prompt_token_ids=token_ids, sampling=sampling), limits)
    except ContextOverflowError:
        raise
    except InvalidRequestError as error:
        raise UsageError(str(error)) from error
