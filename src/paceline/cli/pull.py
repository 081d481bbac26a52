"""`paceline pull NAME`: gets a model into the cache."""

from __future__ import annotations

from typing import Annotated

import typer

ModelArgument = Annotated[
    str, typer.Argument(help="Catalog name, OWNER/REPOSITORY[:FILE] of the model hub, or a path.")
]


def pull(model: ModelArgument) -> None:
    """Get a model; what is there already costs nothing."""
    from paceline import checkpoint
    from paceline.cli.progress import PullProgress

    with PullProgress() as progress:
        installed = checkpoint.pull(model, progress=progress)
    typer.echo(f"{installed.name}: {installed.path}")
