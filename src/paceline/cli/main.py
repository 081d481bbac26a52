"""The `paceline` command: registers the commands, which have a file each, and turns errors into exit codes.

A `UsageError` and a wrong flag exit with 2, every other `PacelineError` with 1, an interrupt with 130. Errors are
printed on stderr, in one line. Commands import the code they need only when they run, so `--version` and `--help` are
quick.
"""

from __future__ import annotations

import errno
import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import paceline
from paceline.cli.bench import bench
from paceline.cli.chat import chat
from paceline.cli.config import config
from paceline.cli.generate import generate
from paceline.cli.list_models import list_models
from paceline.cli.messages import print_error
from paceline.cli.pull import pull
from paceline.cli.remove import remove
from paceline.cli.serve import serve
from paceline.cli.verify import verify
from paceline.core.errors import PacelineError, UsageError

INTERRUPTED_EXIT_CODE = 130


class ReportingGroup(TyperGroup):
    """Runs a command and prints the errors that it raises on purpose. Any other exception is a bug and keeps its
    traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as click declares it)
        """Runs the program. Characters that the terminal's encoding lacks are printed as escapes, not as an error."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        return super().main(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 (the context's type is private to typer)
        """Runs the command; prints an error or an interrupt and raises typer.Exit with its exit code."""
        try:
            return super().invoke(ctx)
        except PacelineError as error:
            print_error(error)
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from error
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            print_error(PacelineError(f"the output cannot be written: {error.strerror}"))
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            typer.echo(err=True)
            raise typer.Exit(INTERRUPTED_EXIT_CODE) from None


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"paceline {paceline.__version__} (python {sys.version.split()[0]})")
        raise typer.Exit


app = typer.Typer(
    cls=ReportingGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def paceline_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Serve open-weight language models with lossless speculative decoding."""


app.command()(serve)
app.command()(generate)
app.command()(chat)
app.command()(pull)
app.command("list")(list_models)
app.command("rm")(remove)
app.command()(verify)
app.command()(config)
app.add_typer(bench, name="bench")
