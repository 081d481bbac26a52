"""`paceline bench`: `tasks` and `crossover` measure on this machine, `record` keeps what drafters propose, `simulate`
replays that.

`paceline bench MODEL` is short for `paceline bench tasks MODEL`.
"""

from __future__ import annotations

import typer
from typer.core import TyperGroup

from paceline.cli.bench_crossover import crossover_command
from paceline.cli.bench_tasks import tasks_command
from paceline.cli.bench_traces import record_command, simulate_command


class _DefaultsToTasks(TyperGroup):
    """A first word that is no command is the model of `tasks`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["tasks", *args]
        return super().parse_args(ctx, args)


bench = typer.Typer(cls=_DefaultsToTasks, no_args_is_help=True, help="Measure, record and simulate speculation.")
bench.command("tasks")(tasks_command)
bench.command("crossover")(crossover_command)
bench.command("record")(record_command)
bench.command("simulate")(simulate_command)
