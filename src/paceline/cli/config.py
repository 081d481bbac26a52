"""`paceline config`: shows every setting, its value, and where the value comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from paceline.cli.options import SERVE_OPTIONS, JsonOption, takes_settings

if TYPE_CHECKING:
    from paceline.config import Settings


@takes_settings(*SERVE_OPTIONS)
def config(settings: Settings, is_json: JsonOption = False) -> None:
    """Show the settings that `serve` would use, and where each comes from; secrets appear by reference only."""
    from paceline.config.names import MODE, SECTIONS

    values = settings.engine.model_dump(mode="json") | settings.server.model_dump(mode="json")
    if is_json:
        entries = {
            section: {name: {"value": values[name], "origin": settings.origins[name]} for name in names}
            for section, names in SECTIONS.items()
        }
        typer.echo(json.dumps(entries, indent=2))
        return
    width = max(map(len, values))
    for section, names in SECTIONS.items():
        typer.echo(f"{section}:")
        for name in names:
            shown = MODE if name == section else name
            typer.echo(f"  {shown:<{width}}  {json.dumps(values[name]):<24}  {settings.origins[name]}")
