"""`unisono checkpoint`: show, verify and compare checkpoints."""

from __future__ import annotations

import datetime
import pathlib
from typing import Any

from unisono._src.foundation import errors
from unisono._src.saving.format import (
    checkpoint_directory,
    checksummed_files,
    comparison,
    manifest,
    one_version,
)
from unisono._src.saving.format.manifest import Entry, Manifest

# A checkpoint may have names and strings of any length; a line shows this many
# characters of each.
_MOST_SHOWN = 400


def app() -> Any:
    """Return the command with its sub-commands."""
    import typer

    made = typer.Typer(help="Look into checkpoints.", no_args_is_help=True)
    made.command("show")(show)
    made.command("verify")(verify)
    made.command("diff")(diff)
    return made


def show(path: pathlib.Path) -> None:
    """Print what is in a checkpoint, without loading arrays.

    PATH is a checkpoint, or a directory whose newest checkpoint is meant.
    """
    import rich.table
    import typer

    where = _find(path)
    found = _manifest(where)
    saved = datetime.datetime.fromtimestamp(found.header.saved_at / 1e9)
    step = "" if found.header.number is None else f", number {found.header.number}"
    typer.echo(_clean_text(f"{where}{step}, saved {saved:%Y-%m-%d %H:%M:%S}"))
    table = rich.table.Table()
    for head in ("name", "kind", "shape", "type", "bytes", "value"):
        is_number = head in ("shape", "bytes")
        table.add_column(
            head, justify="right" if is_number else "left", overflow="fold"
        )
    for key, entry in sorted(found.entries.items()):
        table.add_row(*_row(key, entry))
    arrays = sum(e.nbytes for e in found.entries.values() if e.has_array)
    table.caption = f"{len(found.entries)} values, {arrays:,} bytes in arrays"
    _print(table)


def verify(path: pathlib.Path) -> None:
    """Check every file of a checkpoint, or of all checkpoints in a directory."""
    import typer

    if (path / manifest.NAME).exists() or not path.is_dir():
        found = [path]
    else:
        found = sorted(p.parent for p in path.glob(f"*/{manifest.NAME}"))
        found = [p for p in found if not p.name.startswith(".")]
    if not found:
        raise _failure(f"There is no checkpoint in {path}.")
    failed = 0
    for each in found:
        try:
            made = one_version.read(each, checksummed_files.read_verified)
        except (errors.DataLossError, errors.NotFoundError) as error:
            failed += 1
            typer.echo(f"damaged  {_clean_text(str(each))}: {_clean_text(str(error))}")
            continue
        size = sum(f.size for f in made.files.values())
        typer.echo(
            f"whole    {_clean_text(str(each))} ({len(made.files)} files, {size:,} B)"
        )
    if failed:
        raise typer.Exit(1)


def diff(a: pathlib.Path, b: pathlib.Path) -> None:
    """Print what changed from checkpoint A to checkpoint B; exit 1 if anything did.

    Each of them is a checkpoint, or a directory whose newest checkpoint is meant.
    """
    import rich.table
    import typer

    here, there = _find(a), _find(b)
    try:
        changes = comparison.compare(here, there)
    except (errors.DataLossError, errors.NotFoundError) as error:
        raise _failure(error) from None
    table = rich.table.Table()
    for head in ("", "name", "before", "after", ""):
        table.add_column(head, overflow="fold")
    for change in changes:
        name = _clean_text(change.key.partition("/.ATTRIBUTES/")[0])
        before, after = _describe_entry(change.before), _describe_entry(change.after)
        table.add_row(change.sign, name, before, after, change.detail)
    if not changes:
        typer.echo("no difference")
        return
    typer.echo(_clean_text(f"{here} → {there}"))
    _print(table)
    raise typer.Exit(1)


def _find(path: pathlib.Path) -> pathlib.Path:
    """Return the newest checkpoint in a directory, or else the path itself."""
    if path.is_dir() and not (path / manifest.NAME).exists():
        steps = checkpoint_directory.list_steps(path)
        return steps[-1][0] if steps else path
    return path


def _manifest(path: pathlib.Path) -> Manifest:
    try:
        return one_version.read(path, manifest.read)
    except (errors.DataLossError, errors.NotFoundError) as error:
        raise _failure(error) from None


def _failure(error: object) -> Exception:
    """Print an error, and return the exception that exits with status 2."""
    import typer

    typer.echo(_clean_text(str(error)), err=True)
    return typer.Exit(2)


def _row(key: str, entry: Entry) -> tuple[str, ...]:
    name = _clean_text(key.partition("/.ATTRIBUTES/")[0])
    if entry.has_array:
        shape = "×".join(map(str, entry.shape)) or "scalar"
        return name, entry.kind, shape, entry.dtype, f"{entry.nbytes:,}", ""
    kind = entry.kind + (" of each worker" if entry.is_by_worker else "")
    return name, kind, "", "", f"{entry.nbytes:,}", _clean_text(repr(entry.data()))


def _describe_entry(entry: Entry | None) -> str:
    if entry is None:
        return "–"
    if entry.has_array:
        return f"{entry.dtype}{list(entry.shape)}"
    return _clean_text(repr(entry.data()))


def _clean_text(text: str) -> str:
    """Return a short form of `text` without control characters.

    A terminal would obey them, and the text may be a stranger's.
    """
    shown = "".join(c if c.isprintable() else "�" for c in text)
    return shown if len(shown) <= _MOST_SHOWN else shown[: _MOST_SHOWN - 1] + "…"


def _print(table: object) -> None:
    import rich.console

    rich.console.Console(markup=False, highlight=False).print(table)
