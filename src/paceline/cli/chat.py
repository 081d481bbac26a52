"""`paceline chat MODEL`: a conversation on the terminal; the prefix cache keeps its KV from turn to turn."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.cli.generate import SystemOption
from paceline.cli.options import (
    MaxTokensOption,
    SeedOption,
    TemperatureOption,
    TopPOption,
    limit_options,
    model_options,
    takes_settings,
)
from paceline.config import Settings


@takes_settings(model_options, limit_options)
def chat(
    settings: Settings,
    system: SystemOption = None,
    max_tokens: MaxTokensOption = 1024,
    temperature: TemperatureOption = 0.0,
    top_p: TopPOption = 1.0,
    seed: SeedOption = None,
) -> None:
    """Talk to a model; Ctrl-D ends."""
    from rich.console import Console

    from paceline.cli.answer import PlainText, print_answer
    from paceline.cli.model_files import pull_models
    from paceline.core import SamplingParams
    from paceline.engine import Engine

    pull_models(settings.engine)
    engine = Engine(settings.engine.model_copy(update={"max_batch_size": 1}))
    sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    messages = [] if system is None else [{"role": "system", "content": system}]
    console = Console(highlight=False)
    for question in _questions():
        messages.append({"role": "user", "content": question})
        token_ids = engine.tokenizer.encode_chat(messages)
        answer, _ = print_answer(engine.stream(token_ids, sampling), PlainText(), console)
        messages.append({"role": "assistant", "content": answer})


def _questions() -> Iterator[str]:
    """Lines that the user types, empty ones left out, until the end of input."""
    while True:
        try:
            question = input("> ")
        except EOFError:
            print()  # noqa: T201 (the prompt's line is still open)
            return
        if question.strip():
            yield question
