"""What commands say on stderr besides their answer: one line each."""

from __future__ import annotations

import typer

from paceline.core.errors import PacelineError


def print_error(error: PacelineError) -> None:
    """One line, whatever the error's text is."""
    typer.echo(f"error: {' '.join(str(error).split())}", err=True)


def print_note(text: str) -> None:
    """For what is no error, but should be known."""
    typer.echo(f"note: {text}", err=True)
