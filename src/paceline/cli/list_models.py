"""`paceline list`: lists the models in the cache and the models of the catalog, which can be pulled."""

from __future__ import annotations

import json

import typer

from paceline.cli.options import JsonOption


def list_models(is_json: JsonOption = False) -> None:
    """List the models in the cache, and the models that can be pulled by name."""
    from paceline.operations.models import list_known_models

    models = list_known_models()
    if is_json:
        typer.echo(json.dumps([model.as_json() for model in models], indent=2))
        return
    width = max(len(model.name) for model in models)
    for model in models:
        state = "pulled" if model.is_installed else "-"
        typer.echo(f"{model.name:<{width}}  {model.size_bytes / 2**20:>7.0f} MiB  {state:<6}  {model.description}")
