"""`paceline pull NAME`: gets a model into the cache."""

from __future__ import annotations

from typing import Annotated

import typer

ModelArgument = Annotated[
    str, typer.Argument(help="Catalog name, OWNER/REPOSITORY[:FILE] of the model hub, or a path.")
]


def pull(model: ModelArgument) -> None:
    """Get a model; what is there already costs nothing. The setting hub_token says where the hub's token is."""
    from paceline import checkpoint
    from paceline.cli.progress import PullProgress
    from paceline.config import load_settings

    engine = load_settings({"model": model}).engine
    with PullProgress() as progress:
        installed = checkpoint.pull(model, read_hub_token=engine.read_hub_token, progress=progress)
    typer.echo(f"{installed.name}: {installed.path}")
