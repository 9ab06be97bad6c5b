"""`unisono check`: lists the changes that a TensorFlow program needs to run here."""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, final

import typer

from unisono._src.cli.check import (
    expressions,
    fixes,
    program_text,
    rows,
    uses,
    verdicts,
)
from unisono._src.cli.check.program_text import BadFileError, ProgramFile
from unisono._src.cli.check.verdicts import (
    DIFFERS,
    MISSING,
    ORDER,
    RENAMED,
    SAME,
    UNKNOWN,
    Verdict,
)

# A program that has none of these words, and imports none that has, is told nothing.
_NAMED = re.compile(
    "|".join(
        (
            *rows.PACKAGES,
            *rows.OTHER_PACKAGES,
            *map(r"\b{}\b".format, expressions.TENSORFLOW_NAMES),
        )
    )
)

# How a status is told to people, for one use and for some.
WORDS = {
    SAME: "same",
    DIFFERS: "differs",
    RENAMED: "other name",
    UNKNOWN: "unknown",
    MISSING: "missing",
}
_COLOURS = {
    WORDS[DIFFERS]: "yellow",
    WORDS[RENAMED]: "cyan",
    WORDS[UNKNOWN]: "magenta",
    WORDS[MISSING]: "red",
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
        typer.echo(to_json(checked, bad))
    else:
        _print(checked, brief)
    for path, why in bad.items():
        typer.echo(f"{path}: {why}", err=True)
    if bad:
        raise typer.Exit(2)
    if count(checked)[verdicts.MISSING]:
        raise typer.Exit(1)


def check_files(
    files: Sequence[pathlib.Path],
) -> tuple[list[CheckedFile], dict[str, str]]:
    """Returns the checked files, and the reasons why others cannot be read."""
    programs: dict[str, ProgramFile] = {}
    bad: dict[str, str] = {}
    for path in files:
        try:
            programs[program_text.key(path)] = program_text.read(path)
        except BadFileError as error:
            bad[program_text.show(path)] = str(error)
    finder = program_text.ModuleFinder(program.path for program in programs.values())
    trees = {
        file: [part.tree for part in programs[file].parts]
        for file in _find_programs_of_tensorflow(programs, finder)
    }
    found = uses.find_program_uses(trees, verdicts.result, finder)
    checked = []
    for file, program in programs.items():
        each = found.get(file, [[] for _ in program.parts])
        try:
            made = None if each is None else [*map(verdicts.judge_all, each)]
        except RecursionError:  # A path of hundreds of names.
            made = None
        if made is None:
            bad[program_text.show(program.path)] = "it is nested too deeply."
        else:
            checked.append(CheckedFile(program, made))
    return checked, bad


def _find_programs_of_tensorflow(
    programs: Mapping[str, ProgramFile], finder: program_text.ModuleFinder
) -> list[str]:
    """Returns the files that may use TensorFlow, each after those that it imports."""
    imports: dict[str, list[str]] = {}
    for file, program in programs.items():
        trees = [part.tree for part in program.parts]
        others = program_text.imported_files(finder, file, trees)
        imports[file] = [other for other in dict.fromkeys(others) if other in programs]
    chosen: dict[str, None] = {}
    for file in program_text.sort_by_imports(imports):
        is_direct = _NAMED.search(programs[file].text)
        if is_direct or any(other in chosen for other in imports[file]):
            chosen[file] = None
    return list(chosen)


def _fix(checked: Sequence[CheckedFile], write: bool) -> None:
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


def _print(checked: Sequence[CheckedFile], brief: bool) -> None:
    for each in checked:
        found = list(lines(each, brief))
        if not found:
            continue
        typer.secho(program_text.show(each.program.path), bold=True)
        width = max(len(place) for place, _, _ in found)
        for place, word, told in found:
            styled = typer.style(f"{word:10}", fg=_COLOURS.get(word))
            typer.echo(f"  {place:>{width}}  {styled}  {told}")
    typer.echo(summarize(count(checked)))


def _refusal(why: str) -> typer.Exit:
    typer.echo(why, err=True)
    return typer.Exit(2)


@final
@dataclasses.dataclass(frozen=True)
class CheckedFile:
    """Holds one file with the verdicts on its uses, part by part."""

    program: ProgramFile
    verdicts: Sequence[Sequence[Verdict]]

    def places(self) -> Iterator[tuple[int | None, int, Verdict]]:
        """Yields the cell, the line and the verdict of each use, in order."""
        for part, found in zip(self.program.parts, self.verdicts, strict=True):
            for verdict in found:
                yield part.cell, uses.place_of(verdict.use.node)[0], verdict


def count(checked: Sequence[CheckedFile]) -> dict[str, int]:
    """Returns the number of uses of each status, of all, and of those that run."""
    found = collections.Counter(v.status for c in checked for _, _, v in c.places())
    counts = {status: found[status] for status in ORDER}
    counts["uses"] = found.total()
    counts["unchanged"] = found[SAME] + found[DIFFERS]
    return counts


def summarize(counts: dict[str, int]) -> str:
    """Returns the counts as a sentence.

    >>> summarize({"uses": 3, "unchanged": 2, "same": 1, "differs": 1, "missing": 1})
    '2 of 3 uses run as they are, 1 of them with a difference; 1 is missing.'
    """
    said = f"{counts['unchanged']} of {counts['uses']} uses run as they are"
    if counts[DIFFERS]:
        said += f", {counts[DIFFERS]} of them with a difference"
    rest = [
        f"{counts[status]} {one if counts[status] == 1 else many}"
        for status, one, many in [
            (RENAMED, "has another name", "have another name"),
            (MISSING, "is missing", "are missing"),
            (UNKNOWN, "is unknown", "are unknown"),
        ]
        if counts.get(status)
    ]
    return "; ".join([said, ", ".join(rest)] if rest else [said]) + "."


def lines(checked: CheckedFile, brief: bool) -> Iterator[tuple[str, str, str]]:
    """Yields the place, the word of the status and the message of each use."""
    for cell, line, verdict in checked.places():
        place = f"{line}" if cell is None else f"cell {cell}, {line}"
        if verdict.status != SAME:
            told = f"{verdict.use.written}: {verdict.told}"
            yield place, WORDS[verdict.status], told
        elif not brief:
            yield place, WORDS[SAME], verdict.use.written


def to_json(checked: Sequence[CheckedFile], bad: dict[str, str]) -> str:
    """Returns the report as JSON: files, their uses, errors, and the counts."""
    files: list[dict[str, Any]] = [
        {
            "path": str(each.program.path),
            "uses": [_use(*place) for place in each.places()],
        }
        for each in checked
    ]
    files += [{"path": path, "error": error, "uses": []} for path, error in bad.items()]
    return json.dumps({"files": files, "summary": count(checked)}, indent=1)


def _use(cell: int | None, line: int, verdict: Verdict) -> dict[str, Any]:
    use = verdict.use
    found: dict[str, Any] = {} if cell is None else {"cell": cell}
    found |= {
        "line": line,
        "column": uses.column_of(use.node),
        "written": use.written,
        "name": use.path,
        "status": verdict.status,
    }
    if verdict.told:
        found["told"] = verdict.told
    if verdict.new:
        found["new"] = verdict.new
    return found
