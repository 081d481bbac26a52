"""Prints messages of one line on stderr, beside the answers of commands."""

from __future__ import annotations

import typer

from paceline.core.errors import PacelineError


def print_error(error: PacelineError) -> None:
    """Prints an error as one line, even if its text has several lines."""
    typer.echo(f"error: {' '.join(str(error).split())}", err=True)


def print_note(text: str) -> None:
    """Prints a note: something that the user should know but that is not an error."""
    typer.echo(f"note: {text}", err=True)
