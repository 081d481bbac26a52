"""The options that several commands share, declared once.

`takes_settings` gives a command the options of the engine, or of the server too, and passes it one `Settings` value
that is merged from flags, environment and file.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.backends.registry import backend_names
from paceline.core.errors import UsageError
from paceline.drafters.registry import built_in_names
from paceline.sampling import RANGES

_MAX_INT32 = 2**31 - 1


def is_number(value: float) -> float:
    """Refuses nan, which an option's bounds let through. It is a callback of options."""
    if math.isnan(value):
        raise typer.BadParameter("nan is not a number")
    return value


def is_text(value: str | None) -> str | None:
    """Refuses a value that is not valid UTF-8. It is a callback of options and arguments."""
    try:
        (value or "").encode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter(f"it is not UTF-8 text from character {error.start} on") from error
    return value


def are_texts(values: list[str] | None) -> list[str] | None:
    """Refuses empty values and values that are not valid UTF-8. It is a callback of options."""
    for value in values or ():
        if not value:
            raise typer.BadParameter("an empty text occurs everywhere; leave it out")
        is_text(value)
    return values


def sampling_option(name: str, text: str) -> Any:  # noqa: ANN401 - typer's word for an option
    """Returns the option for the sampling parameter `name`, with the range of that parameter."""
    allowed = RANGES[name]
    flag = f"--{name.replace('_', '-')}"
    return typer.Option(flag, min=allowed.lowest, max=allowed.highest, callback=is_number, help=text)


TemperatureOption = Annotated[float, sampling_option("temperature", "0 is greedy.")]
TopPOption = Annotated[
    float, sampling_option("top_p", "Keep the most likely tokens until their probabilities add up to this.")
]
TopKOption = Annotated[
    int | None, typer.Option(min=1, max=_MAX_INT32, help="Keep only this many of the most likely tokens.")
]
MinPOption = Annotated[
    float, sampling_option("min_p", "Drop tokens less likely than this share of the likeliest one's probability.")
]
SystemOption = Annotated[str | None, typer.Option(callback=is_text, help="System message of the chat.")]
StopOption = Annotated[
    list[str] | None,
    typer.Option(callback=are_texts, help="End the answer before this text; may be given several times."),
]
SeedOption = Annotated[int | None, typer.Option(min=0, max=2**64 - 1, help="The same seed gives the same text.")]
MaxTokensOption = Annotated[int, typer.Option(min=1, help="End the answer after this many tokens.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OfflineOption = Annotated[bool, typer.Option("--offline", help="Never download.")]


ConfigOption = Annotated[Path | None, typer.Option(help="Settings file; default: paceline.yaml if it exists.")]


def model_options(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A name of the catalog, OWNER/REPOSITORY[:FILE.gguf] of the model hub, or the path of a GGUF file."
        ),
    ] = None,
    model_path: Annotated[str | None, typer.Option(hidden=True)] = None,
    draft_model: Annotated[
        str | None,
        typer.Option("--draft-model", "--draft-model-path", help="Model that drafts; default: the catalog's choice."),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help=f"Where models run: {' or '.join(backend_names())} (numpy, slow); default: native."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads that run the models; default: all cores that the process may use.")
    ] = None,
    kv_cache_type: Annotated[
        str | None, typer.Option(help="How K and V are stored: f16, or q8 for half the memory; default: f16.")
    ] = None,
    activation_bits: Annotated[
        int | None,
        typer.Option(help="Bits of activations: 8, or 15 (more exact, slower); default: 15 for narrow models, else 8."),
    ] = None,
    hub_token: Annotated[
        str | None, typer.Option(help="Where the model hub's access token is: env:NAME or file:PATH.")
    ] = None,
    is_offline: OfflineOption = False,
) -> dict[str, object]:
    """Returns the settings that say which models run, and how; None marks an option that was not given.

    `--model-path MODEL` is another way to write MODEL. Raises UsageError if both are given.
    """
    if model is not None and model_path is not None:
        raise UsageError(f"the model is named twice, as {model} and by --model-path {model_path}; name it once")
    return {
        "model": model or model_path,
        "draft_model": draft_model,
        "backend": backend,
        "num_threads": threads,
        "kv_cache_type": kv_cache_type,
        "activation_bits": activation_bits,
        "hub_token": hub_token,
        "is_offline": is_offline or None,
    }


def draft_options(
    drafters: Annotated[
        str | None,
        typer.Option(
            help=f"Names joined by commas ({', '.join(built_in_names())}, or another package's), or none; default: "
            "suffix, grammar, draft-model if there is a draft model, and shared-layers if --shared-layers is given."
        ),
    ] = None,
    shared_layers: Annotated[
        int | None,
        typer.Option(help="Draft with this many first layers of the model, if it has no smaller sibling; default: 0."),
    ] = None,
    suffix_store_tokens: Annotated[
        int | None, typer.Option(help="Number of tokens of recent outputs that the suffix drafter keeps; 0 keeps none.")
    ] = None,
    draft_vocab_size: Annotated[
        str | None,
        typer.Option(help="The draft model can guess this many tokens, the most frequent ones; all sets no limit."),
    ] = None,
    draft_weight_bits: Annotated[
        str | None, typer.Option(help="Bits for each weight of the draft model: 4, or all to keep them as in the file.")
    ] = None,
) -> dict[str, object]:
    """Returns the settings that say who drafts, and how much of a draft model is kept; None marks an option that was
    not given."""
    return {
        "drafters": drafters,
        "shared_layers": shared_layers,
        "suffix_store_tokens": suffix_store_tokens,
        "draft_vocab_size": draft_vocab_size,
        "draft_weight_bits": draft_weight_bits,
    }


def limit_options(
    speculation: Annotated[
        str | None, typer.Option(help="auto, fixed (always --num-speculative-tokens) or off; default: auto.")
    ] = None,
    num_speculative_tokens: Annotated[
        int | None,
        typer.Option(
            "--num-speculative-tokens",
            "--speculative-tokens",
            "--speculation-window",
            help="Maximum number of tokens to draft for a sequence in a step.",
        ),
    ] = None,
    fallback_threshold: Annotated[
        float | None, typer.Option(help="A drafter rests while its acceptance rate is below this share.")
    ] = None,
    context_window_size: Annotated[
        int | None,
        typer.Option(
            "--context-window-size",
            "--max-context-length",
            help="Maximum number of tokens of prompt and answer together.",
        ),
    ] = None,
) -> dict[str, object]:
    """Returns the limits of one sequence; None marks an option that was not given."""
    return {
        "speculation": speculation,
        "num_speculative_tokens": num_speculative_tokens,
        "fallback_threshold": fallback_threshold,
        "context_window_size": context_window_size,
    }


def batch_options(
    max_batch_size: Annotated[int | None, typer.Option(help="Maximum number of sequences in one step.")] = None,
    warmup: Annotated[
        bool | None, typer.Option("--warmup/--no-warmup", help="Answer a short request before the engine is ready.")
    ] = None,
) -> dict[str, object]:
    """Returns the settings of an engine that serves; None marks an option that was not given."""
    return {"max_batch_size": max_batch_size, "has_warmup": warmup}


def server_options(
    host: Annotated[str | None, typer.Option(help="Address to listen at.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen at; 0 takes a free port.")] = None,
    grpc_port: Annotated[
        int | None, typer.Option(help="Port for gRPC; 0 takes a free port; default: gRPC is not served.")
    ] = None,
    grpc_reflection: Annotated[
        bool | None, typer.Option("--grpc-reflection/--no-grpc-reflection", help="Let gRPC clients list the services.")
    ] = None,
    served_model_name: Annotated[
        str | None, typer.Option(help="Name by which clients ask for the model; default: the model's own name.")
    ] = None,
    tool_format: Annotated[
        str | None,
        typer.Option(help="Name of the format of the model's tool calls; default: the one that its template shows."),
    ] = None,
    reasoning_format: Annotated[
        str | None,
        typer.Option(help="auto (reasoning in a field of its own) or none (within the content); default: auto."),
    ] = None,
    default_sampling: Annotated[
        str | None,
        typer.Option(help="Sampling that requests do not set: model (its author's) or openai; default: model."),
    ] = None,
    fronts: Annotated[str | None, typer.Option(help="APIs to serve, names joined by commas; default: all.")] = None,
    cors_origins: Annotated[
        str | None, typer.Option(help="Addresses of web pages that may use the server, joined by commas; *: all pages.")
    ] = None,
    allowed_hosts: Annotated[
        str | None, typer.Option(help="Further names by which a server at 127.0.0.1 may be called, joined by commas.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="Format of the log: plain or json.")] = None,
) -> dict[str, object]:
    """Returns the settings of the server; None marks an option that was not given."""
    return {
        "host": host,
        "port": port,
        "grpc_port": grpc_port,
        "has_grpc_reflection": grpc_reflection,
        "served_model_name": served_model_name,
        "tool_format": tool_format,
        "reasoning_format": reasoning_format,
        "default_sampling": default_sampling,
        "fronts": fronts,
        "cors_origins": cors_origins,
        "allowed_hosts": allowed_hosts,
        "log_format": log_format,
    }


SERVE_OPTIONS = (model_options, draft_options, limit_options, batch_options, server_options)
"""All options that are settings. `serve` takes them, and `config` shows them."""


def takes_settings(*groups: Callable[..., dict[str, object]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator for a command whose first parameter is `settings`.

    In place of that parameter the command gets the options of `groups` and `--config`. `settings` receives these
    options, merged over the environment and the settings file.
    """
    shared = {name: option for group in groups for name, option in _parameters(group).items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:  # noqa: ANN401
            from paceline.config import load_settings

            flags: dict[str, object] = {}
            if arguments.get("prompt", "") is None:  # a single word is the prompt; the settings name the model
                arguments["prompt"], arguments["model"] = arguments["model"], None
            for group in groups:
                flags |= group(**{name: arguments.pop(name) for name in _parameters(group)})
            command(load_settings(flags, file=arguments.pop("config")), **arguments)

        own = list(_parameters(command).values())[1:]
        _set_parameters(run, [shared["model"], *own, *(shared[name] for name in shared if name != "model")])
        return run

    return decorate


def _parameters(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    """Returns the parameters with their types evaluated. `Settings`, which is no option's type, is not imported."""
    return inspect.signature(function, eval_str=True, locals={"Settings": object}).parameters


def _set_parameters(command: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """Makes `command` look as if it was declared with `parameters` and `--config`."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    config = inspect.Parameter("config", keyword, default=None, annotation=ConfigOption)
    declared = [*(parameter.replace(kind=keyword) for parameter in parameters), config]
    command.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in declared}
