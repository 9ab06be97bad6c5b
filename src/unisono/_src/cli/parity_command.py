"""`unisono parity`: compares a script on one device and on several."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Annotated, Any

import typer

from unisono._src.testing import parity, script_runs


def app() -> Any:
    """Returns the command ``parity`` as a program of its own."""
    made = typer.Typer(add_completion=False)
    made.command("parity")(run_parity)
    return made


def run_parity(
    script: Annotated[
        pathlib.Path, typer.Argument(metavar="SCRIPT", help="A training program.")
    ],
    args: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGS", help="The arguments of the program."),
    ] = None,
    replicas: Annotated[
        str, typer.Option("--replicas", help="The numbers of replicas.")
    ] = "1,8",
    steps: Annotated[
        int, typer.Option("--steps", min=1, help="How many steps to compare.")
    ] = 5,
    write: Annotated[
        bool,
        typer.Option("--write", help="Let the program save and write summaries."),
    ] = False,
) -> None:
    """Tell whether a program computes the same on one device and on several.

    Each number of replicas runs in a process of its own, which ends after some calls of
    the program's compiled step. The status is 1 for a difference, 2 if the runs cannot
    be compared.
    """
    if not script.is_file():
        raise _refusal(f"{script} is no file.")
    try:
        sizes = parity.check_sizes([int(n) for n in replicas.split(",")])
    except ValueError:
        raise _refusal(
            f"--replicas takes numbers such as 1,8; received {replicas!r}."
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        try:
            runner = script_runs.ScriptRunner(
                script, args or [], steps, write, pathlib.Path(folder)
            )
            report = parity.compare_sizes(runner, runner.given, sizes, orders=2)
        except script_runs.CannotCompareError as error:
            raise _refusal(str(error)) from None
    typer.echo(str(report))
    if not report:
        raise typer.Exit(1)


def _refusal(why: str) -> typer.Exit:
    typer.echo(why, err=True)
    return typer.Exit(2)
