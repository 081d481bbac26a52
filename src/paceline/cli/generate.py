"""`paceline generate MODEL PROMPT`: streams one answer to standard output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.options import (
    MaxTokensOption,
    MinPOption,
    SeedOption,
    StopOption,
    SystemOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    draft_options,
    is_text,
    limit_options,
    model_options,
    takes_settings,
)

if TYPE_CHECKING:
    from paceline.config import Settings
    from paceline.core import Output

PromptArgument = Annotated[
    str | None, typer.Argument(callback=is_text, help="The prompt; - reads it from standard input.", show_default=False)
]
RawOption = Annotated[bool, typer.Option("--raw", help="Continue the prompt as it is, without the chat template.")]
ShowDraftsOption = Annotated[
    bool, typer.Option("--show-drafts", help="Colour accepted draft tokens, and print how many were accepted.")
]


@takes_settings(model_options, draft_options, limit_options)
def generate(
    settings: Settings,
    prompt: PromptArgument = None,
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
    """Answer one prompt, greedily unless a temperature is given. MODEL may be left out if the settings name one."""
    from rich.console import Console

    from paceline.cli.answer import DraftColours, PlainText, print_answer
    from paceline.cli.model_files import pull_models
    from paceline.cli.prompts import check_answerable, encode_prompt, read_text
    from paceline.core import SamplingParams
    from paceline.core.errors import UsageError
    from paceline.engine import Engine
    from paceline.engine.assembly import load_parts, open_pair

    if prompt is None:
        raise UsageError("there is no prompt: give it as the last argument, or - to read it from standard input")
    if is_raw and system is not None:
        raise UsageError("--system needs the chat template, which --raw leaves out; drop one of them")
    text = read_text(prompt)
    sampling = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        stop=tuple(stop or ()),
    )
    config = settings.engine.model_copy(update={"max_batch_size": 1})
    pull_models(config)
    with open_pair(config) as files:
        token_ids = encode_prompt(files.target, text, system, is_raw=is_raw)
        check_answerable(token_ids, sampling, files.limits)
        engine = Engine.from_parts(config, load_parts(files, config))
    colours = DraftColours(engine.tokenizer, token_ids) if is_showing_drafts else PlainText()
    _, last = print_answer(engine.stream(token_ids, sampling), colours, Console(highlight=False))
    if is_showing_drafts:
        typer.echo(describe_speculation(last), err=True)


def describe_speculation(output: Output) -> str:
    """Returns a line that says how many draft tokens were accepted in a finished answer."""
    speculation = output.speculation
    num_tokens = output.first_token_index + len(output.token_ids)
    drafters = ", ".join(f"{name} {accepted}/{drafted}" for name, (drafted, accepted) in speculation.by_drafter.items())
    return (
        f"{num_tokens} tokens in {speculation.num_steps} steps; accepted {speculation.num_accepted_tokens} of "
        f"{speculation.num_draft_tokens} draft tokens{f' ({drafters})' if drafters else ''}"
    )
