"""Runs the command line, and loads each command when it is used."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Annotated, Any, final

import typer
import typer.core
import typer.main

# Each module has a function `app` that returns a `typer.Typer`.
_COMMANDS = {
    "check": "unisono._src.cli.check.command",
    "checkpoint": "unisono._src.cli.checkpoint_command",
    "launch": "unisono._src.cli.launch.command",
    "parity": "unisono._src.cli.parity_command",
}


@final
class _Commands(typer.core.TyperGroup):
    """Imports a command's module when the user asks for the command."""

    def list_commands(self, ctx: object) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name])
        command = typer.main.get_command(module.app())
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=_Commands,
    name="unisono",
    help="TensorFlow's tf.distribute programming model on JAX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"unisono {importlib.metadata.version('unisono')}")
        raise typer.Exit


# Typer makes a group only of what has commands or a callback of its own.
@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Runs the command line."""
    app(prog_name="unisono")
