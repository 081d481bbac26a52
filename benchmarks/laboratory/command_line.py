"""Runs a script of the laboratory as `paceline` runs its commands: an error is one line and has its exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from paceline.cli.messages import print_error
from paceline.core.errors import PacelineError, UsageError


def run(*commands: Callable[..., None]) -> None:
    """Runs the command line. A single command needs no name; several have the names of their functions."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    for command in commands:
        app.command()(command)
    try:
        app()
    except PacelineError as error:
        print_error(error)
        sys.exit(2 if isinstance(error, UsageError) else 1)
