"""`paceline bench tasks MODEL` measures speculation on this machine; `paceline bench MODEL` is short for it."""

from __future__ import annotations

import typer
from typer.core import TyperGroup

from paceline.cli.bench_tasks import tasks_command


class _DefaultsToTasks(TyperGroup):
    """Takes a first word that is not a command as the model of `tasks`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["tasks", *args]
        return super().parse_args(ctx, args)


bench = typer.Typer(cls=_DefaultsToTasks, no_args_is_help=True, help="Measure speculation on this machine.")


@bench.callback()
def bench_command() -> None:
    """Measure speculation on this machine; `paceline bench MODEL` is short for `paceline bench tasks MODEL`."""


bench.command("tasks")(tasks_command)
