"""`paceline generate MODEL PROMPT`: streams one answer to standard output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.options import (
    MaxTokensOption,
    MinPOption,
    SeedOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    limit_options,
    model_options,
    takes_settings,
)
from paceline.config import Settings

if TYPE_CHECKING:
    from paceline.core import Output
    from paceline.tokenizer import Tokenizer

STANDARD_INPUT = "-"

PromptArgument = Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")]
SystemOption = Annotated[str | None, typer.Option(help="System message.")]
StopOption = Annotated[list[str] | None, typer.Option(help="End where this text comes up; may be given several times.")]
RawOption = Annotated[bool, typer.Option("--raw", help="Continue the prompt as it is, without the chat template.")]
ShowDraftsOption = Annotated[
    bool, typer.Option("--show-drafts", help="Colour accepted draft tokens; print what drafts did.")
]


@takes_settings(model_options, limit_options)
def generate(
    settings: Settings,
    prompt: PromptArgument,
    max_tokens: MaxTokensOption = 512,
    temperature: TemperatureOption = 0.0,
    top_p: TopPOption = 1.0,
    top_k: TopKOption = None,
    min_p: MinPOption = 0.0,
    seed: SeedOption = None,
    stop: StopOption = None,
    system: SystemOption = None,
    is_raw: RawOption = False,
    is_showing_drafts: ShowDraftsOption = False,
) -> None:
    """Answer one prompt; greedy unless a temperature is given."""
    from rich.console import Console

    from paceline.cli.answer import DraftColours, PlainText, print_answer
    from paceline.cli.model_files import pull_models
    from paceline.core import SamplingParams
    from paceline.engine import Engine

    text = sys.stdin.read() if prompt == STANDARD_INPUT else prompt
    sampling = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        stop=tuple(stop or ()),
    )
    pull_models(settings.engine)
    engine = Engine(settings.engine.model_copy(update={"max_batch_size": 1}))
    is_chat = engine.tokenizer.has_chat_template and not is_raw
    token_ids = encode_question(engine.tokenizer, text, system) if is_chat else engine.tokenizer.encode_prompt(text)
    colours = DraftColours(engine.tokenizer, token_ids) if is_showing_drafts else PlainText()
    _, last = print_answer(engine.stream(token_ids, sampling), colours, Console(highlight=False))
    if is_showing_drafts:
        typer.echo(describe_speculation(last), err=True)


def encode_question(tokenizer: Tokenizer, text: str, system: str | None) -> list[int]:
    """Token ids of a chat of one question."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    return tokenizer.encode_chat([*messages, {"role": "user", "content": text}])


def describe_speculation(output: Output) -> str:
    """What drafts did for a finished answer, in one line."""
    speculation = output.speculation
    num_tokens = output.first_token_index + len(output.token_ids)
    drafters = ", ".join(f"{name} {accepted}/{drafted}" for name, (drafted, accepted) in speculation.by_drafter.items())
    return (
        f"{num_tokens} tokens in {speculation.num_steps} steps; accepted {speculation.num_accepted_tokens} of "
        f"{speculation.num_draft_tokens} draft tokens{f' ({drafters})' if drafters else ''}"
    )
