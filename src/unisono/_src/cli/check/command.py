"""`unisono check`: lists the changes that a TensorFlow program needs to run here."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from unisono._src.cli.check import fixes, program_text, report, rows, uses, verdicts
from unisono._src.cli.check.program_text import BadFileError
from unisono._src.cli.check.report import Checked

# A program that names none of them has nothing to be told.
_PACKAGES = ("tensorflow", "unisono", *rows.OTHER_PACKAGES)

_COLOURS = {
    "differs": "yellow",
    "other name": "cyan",
    "unknown": "magenta",
    "missing": "red",
}


def app() -> Any:
    """Returns the command ``check`` as a program of its own."""
    made = typer.Typer(add_completion=False)
    made.command("check")(check)
    return made


def check(
    paths: Annotated[
        list[pathlib.Path],
        typer.Argument(metavar="PATH...", help="Python files, notebooks, folders."),
    ],
    fix: Annotated[
        bool, typer.Option("--fix", help="Show imports and names changed, as a diff.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="With --fix: change the files.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    brief: Annotated[
        bool, typer.Option("--brief", help="Leave out what is the same.")
    ] = False,
) -> None:
    """Tell what a TensorFlow program has to change to run with unisono.

    Programs are read, not run. The status is 1 if a name is missing, 2 if a file
    cannot be read.
    """
    if write and not fix:
        raise _refusal("--write changes files by --fix; give both.")
    if fix and as_json:
        raise _refusal("--fix prints a diff and --json a report; give one of them.")
    try:
        files = list(program_text.find_files(paths))
    except BadFileError as error:
        raise _refusal(str(error)) from None
    checked, bad = check_files(files)
    if fix:
        _fix(checked, write)
    elif as_json:
        typer.echo(report.to_json(checked, bad))
    else:
        _print(checked, brief)
    for path, why in bad.items():
        typer.echo(f"{path}: {why}", err=True)
    if bad:
        raise typer.Exit(2)
    if report.count(checked)[verdicts.MISSING]:
        raise typer.Exit(1)


def check_files(
    files: Sequence[pathlib.Path],
) -> tuple[list[Checked], dict[str, str]]:
    """Returns the checked files, and the reasons why others cannot be read."""
    checked, bad = [], {}
    for path in files:
        try:
            checked.append(_check(path))
        except BadFileError as error:
            bad[program_text.show(path)] = str(error)
    return checked, bad


def _check(path: pathlib.Path) -> Checked:
    program = program_text.read(path)
    if not any(package in program.text for package in _PACKAGES):
        return Checked(program, [[] for _ in program.parts])
    trees = [part.tree for part in program.parts]
    try:
        found = uses.find_uses(trees, verdicts.result)
    except RecursionError:
        raise BadFileError("it is nested too deeply.") from None
    return Checked(program, [verdicts.judge_all(each) for each in found])


def _fix(checked: Sequence[Checked], write: bool) -> None:
    changed = 0
    for each in checked:
        fixed = fixes.fix(each.program, each.verdicts)
        if fixed != each.program.text:
            changed += 1
            typer.echo(fixes.show(each.program, fixed), nl=False)
            if write:
                encoded = fixed.encode(each.program.encoding)
                each.program.path.write_bytes(encoded)
    done = "changed" if write else "would change; --write changes them"
    typer.echo(f"{changed} of {len(checked)} files {done}.")


def _print(checked: Sequence[Checked], brief: bool) -> None:
    for each in checked:
        found = list(report.lines(each, brief))
        if not found:
            continue
        typer.secho(program_text.show(each.program.path), bold=True)
        width = max(len(place) for place, _, _ in found)
        for place, word, told in found:
            styled = typer.style(f"{word:10}", fg=_COLOURS.get(word))
            typer.echo(f"  {place:>{width}}  {styled}  {told}")
    typer.echo(report.summarize(report.count(checked)))


def _refusal(why: str) -> typer.Exit:
    typer.echo(why, err=True)
    return typer.Exit(2)
