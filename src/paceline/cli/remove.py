"""`paceline rm NAME`: deletes a model from the cache."""

from __future__ import annotations

from typing import Annotated

import typer


def remove(model: Annotated[str, typer.Argument(help="The model's name, as `paceline list` shows it.")]) -> None:
    """Delete a model from the cache."""
    from paceline.checkpoint import remove_model

    remove_model(model)
    typer.echo(f"removed {model}")
