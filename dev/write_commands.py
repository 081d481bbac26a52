"""Writes docs/commands.md, the list of all commands with their options, from the command line's own declarations.

    write_commands.py [--check]

With `--check` it writes nothing, and exits 1 where the file is not what it would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from paceline.cli.main import app

TARGET = Path(__file__).parents[1] / "docs" / "commands.md"
HEADER = """# Commands

`paceline COMMAND --help` shows the same. Options that are settings may also be given in `paceline.yaml` and in the
environment; `paceline config` shows all settings, their values, and where each value comes from.
"""


def command_lines(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - typer's commands have no public type
    """Yields the section of one command."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    words = [one.name.upper() if one.required else f"[{one.name.upper()}]" for one in arguments]
    yield from ("", f"## `{' '.join(['paceline', name, *words])}`", "", command.help.strip(), "")
    yield from ("| option | meaning |", "|---|---|")
    for one in arguments:
        yield f"| `{one.name.upper()}` | {_cell(one.help)} |"
    for one in command.params:
        if one.param_type_name == "option" and not one.hidden:
            yield f"| {', '.join(f'`{flag}`' for flag in one.opts)} | {_cell(one.help)} |"


def render() -> str:
    """Returns the whole file."""
    group = typer.main.get_command(app)
    lines = [line for name, command in group.commands.items() for line in command_lines(name, command)]  # type: ignore[attr-defined]
    return HEADER + "\n".join(lines) + "\n"


def _cell(text: str | None) -> str:
    """Returns a help text as a cell of a table."""
    return " ".join((text or "").split()).replace("|", "\\|")


def main() -> None:
    """Runs the command line."""
    text = render()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != text:
        sys.exit("docs/commands.md is not what the command line declares: run dev/write_commands.py")


if __name__ == "__main__":
    main()
