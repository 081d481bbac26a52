"""`paceline pull NAME`: puts a model into the cache."""

from __future__ import annotations

from typing import Annotated

import typer

ModelArgument = Annotated[
    str, typer.Argument(help="A name of the catalog, OWNER/REPOSITORY[:FILE] of the model hub, or the path of a file.")
]


def pull(model: ModelArgument) -> None:
    """Put a model into the cache, unless it is there already. The setting hub_token says where the hub's token is."""
    from paceline import checkpoint
    from paceline.cli.progress import PullProgress
    from paceline.config import load_settings

    engine = load_settings({"model": model}).engine
    with PullProgress() as progress:
        installed = checkpoint.pull(model, read_hub_token=engine.read_hub_token, progress=progress)
    typer.echo(f"{installed.name}: {installed.path}")
