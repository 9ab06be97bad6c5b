"""`unisono parity`: compares a script on one device, on several and in TensorFlow."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Annotated, Any

import typer

from unisono._src.testing import (
    parity,
    porting,
    recorded_runs,
    recorder,
    recordings,
    script_runs,
)


def app() -> Any:
    """Returns the command ``parity`` as a program of its own."""
    made = typer.Typer(add_completion=False)
    made.command("parity")(run_parity)
    return made


_Record = Annotated[
    bool,
    typer.Option("--record", help="Print a program that records one of TensorFlow."),
]
_Recorded = Annotated[
    pathlib.Path | None,
    typer.Option("--recorded", help="Compare with the recording in this folder."),
]
_Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="OLD=NEW", help="Names of one variable."),
]
_Step = Annotated[
    str | None, typer.Option("--step", help="With --recorded: the step's function.")
]


def run_parity(
    script: Annotated[
        pathlib.Path | None,
        typer.Argument(metavar="SCRIPT", help="A training program."),
    ] = None,
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
    record: _Record = False,
    recorded: _Recorded = None,
    mapped: _Map = None,
    step: _Step = None,
) -> None:
    """Tell whether a program computes the same on one device and on several.

    Each number of replicas runs in a process of its own, which ends after some calls of
    the program's compiled step. With --recorded it tells whether the program computes
    what a recorded one of TensorFlow did. The status is 1 for a difference, 2 if the
    runs cannot be compared.
    """
    if record:
        typer.echo(
            pathlib.Path(recorder.__file__).read_text(encoding="utf-8"), nl=False
        )
        return
    if script is None or not script.is_file():
        raise _refusal(f"{script} is no file." if script else "Name a program.")
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        try:
            if recorded is not None:
                names = _read_names(mapped or [])
                given = recordings.read(recorded)
                runner = recorded_runs.PortRunner(
                    script, args or [], recorded, given, names, step, folder
                )
                report: Any = porting.compare_with_recording(runner)
            else:
                report = _compare(script, args or [], replicas, steps, write, folder)
        except (script_runs.CannotCompareError, recordings.RecordingError) as error:
            raise _refusal(str(error)) from None
    typer.echo(str(report))
    if not report:
        raise typer.Exit(1)


def _compare(
    script: pathlib.Path,
    args: list[str],
    replicas: str,
    steps: int,
    write: bool,
    folder: pathlib.Path,
) -> parity.ParityReport:
    """Compares a script on several numbers of replicas."""
    try:
        sizes = parity.check_sizes([int(n) for n in replicas.split(",")])
    except ValueError:
        raise _refusal(
            f"--replicas takes numbers such as 1,8; received {replicas!r}."
        ) from None
    runner = script_runs.ScriptRunner(script, args, steps, write, folder)
    return parity.compare_sizes(runner, runner.given, sizes, floors=2)


def _read_names(mapped: list[str]) -> dict[str, str]:
    """Returns the names that ``--map`` gives."""
    pairs = [text.partition("=") for text in mapped]
    for old, _, new in pairs:
        if not (old and new):
            raise _refusal(f"--map takes OLD=NEW; received {old!r}.")
    return {old: new for old, _, new in pairs}


def _refusal(why: str) -> typer.Exit:
    typer.echo(why, err=True)
    return typer.Exit(2)
