"""`paceline chat MODEL`: holds a conversation on the terminal. The prefix cache keeps its KV from turn to turn."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import TextIOWrapper
from typing import TYPE_CHECKING

import typer

from paceline.cli.messages import print_error
from paceline.cli.options import (
    MaxTokensOption,
    SeedOption,
    SystemOption,
    TemperatureOption,
    TopPOption,
    draft_options,
    limit_options,
    model_options,
    takes_settings,
)
from paceline.core.errors import PacelineError

if TYPE_CHECKING:
    from paceline.cli.conversation import Conversation
    from paceline.config import Settings


@takes_settings(model_options, draft_options, limit_options)
def chat(
    settings: Settings,
    system: SystemOption = None,
    max_tokens: MaxTokensOption = 1024,
    temperature: TemperatureOption = 0.0,
    top_p: TopPOption = 1.0,
    seed: SeedOption = None,
) -> None:
    """Talk to a model; Ctrl-D ends the conversation.

    Exits with 1 if a question got no answer.
    """
    from paceline.cli.conversation import Conversation
    from paceline.cli.model_files import pull_models
    from paceline.cli.prompts import check_chats, opening
    from paceline.core import SamplingParams
    from paceline.engine import Engine
    from paceline.engine.assembly import load_parts, open_pair

    config = settings.engine.model_copy(update={"max_batch_size": 1})
    sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    pull_models(config)
    with open_pair(config) as files:
        advice = f"continue a text with: paceline generate --raw {config.model} PROMPT"
        check_chats(files.target, [[*opening(system), {"role": "user", "content": "?"}]], advice)
        engine = Engine.from_parts(config, load_parts(files, config))
    if not _ask_all(Conversation(engine, sampling, opening(system))):
        raise typer.Exit(1)


def _ask_all(conversation: Conversation) -> bool:
    """Asks every question that the user types; returns whether all of them were answered."""
    is_answered = True
    for question in _questions():
        try:
            conversation.ask(question)
        except PacelineError as error:
            print_error(error)
            is_answered = False
    return is_answered


def _questions() -> Iterator[str]:
    """Yields the lines that the user types, except empty ones, until the end of input."""
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # a line that is not UTF-8 fails alone, not the whole chat
    while True:
        try:
            question = input("> ")
        except EOFError:
            print()  # noqa: T201 (ends the line of the "> " prompt)
            return
        if question.strip():
            yield question
