"""The command itself: its parts, each in a module of its own."""

from __future__ import annotations

from typing import Any

from unisono._src.cli import checkpoint


def app() -> Any:
    """The command with all its parts."""
    import typer

    made = typer.Typer(
        name="unisono",
        help="Tools for programs that train with unisono.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    @made.callback()
    def root() -> None:
        """Tools for programs that train with unisono."""

    made.add_typer(checkpoint.app(), name="checkpoint")
    return made


def run() -> None:
    """What the console script calls."""
    app()()
