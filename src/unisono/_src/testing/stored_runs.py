"""Runs in files: what a process has recorded, as arrays and JSON."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from unisono._src.foundation.options import VariableAggregation
from unisono._src.testing.records import GRADIENT, Key, Run, StepRecord

if TYPE_CHECKING:
    from unisono._src.testing.script_process import ScriptRecorder


@final
@dataclasses.dataclass(frozen=True)
class StoredRun:
    """What a process has recorded.

    Attributes:
        run: the values.
        batches: the rows of the arguments of each step.
        lines: the line that made each value, by kind and name.
        first_only: the names of variables that keep the first replica's value.
        strategies: how many strategies had the wanted number of replicas.
    """

    run: Run
    batches: list[list[np.ndarray]]
    lines: dict[Key, str]
    first_only: frozenset[str]
    strategies: int


def write(folder: pathlib.Path, recorder: ScriptRecorder, strategies: int) -> None:
    """Writes the record of a script."""
    arrays: dict[str, np.ndarray] = {}
    every = [recorder.run.before, *recorder.run.steps]
    told = [_put(arrays, f"{i}", record) for i, record in enumerate(every)]
    cells = {recorder.names.name(c): c for c in recorder.names.cells()}
    lines = [
        (GRADIENT, recorder.names.name(c), at) for c, at in recorder.taps.lines.items()
    ]
    lines += [("", name, cell.origin) for name, cell in cells.items()]
    first = VariableAggregation.ONLY_FIRST_REPLICA
    made = {
        "records": told,
        "lines": lines,
        "first_only": [n for n, c in cells.items() if c.aggregation is first],
        "strategies": strategies,
    }
    np.savez(folder / "record.npz", **arrays)  # type: ignore[arg-type]
    write_batches(folder / "seen.npz", recorder.batches)
    values = {key.name: x for key, x in recorder.run.before.values.items()}
    write_values(folder / "before.npz", values)
    (folder / "record.json").write_text(json.dumps(made))


def _put(arrays: dict[str, np.ndarray], at: str, record: StepRecord) -> Any:
    """Puts the arrays of a record among others, and returns the rest of it."""
    rows = []
    for i, (key, value) in enumerate(record.values.items()):
        arrays[f"{at}/{i}"] = value
        if key in record.copies:
            arrays[f"{at}/{i}/copies"] = record.copies[key]
        rows.append((*key, record.epsilon[key]))
    return {"values": rows, "uncompared": sorted(record.uncompared)}


def read(folder: pathlib.Path) -> StoredRun:
    """Returns what `write` has written."""
    made = json.loads((folder / "record.json").read_text())
    with np.load(folder / "record.npz", allow_pickle=False) as arrays:
        before, *steps = (
            _take(arrays, f"{i}", told) for i, told in enumerate(made["records"])
        )
    return StoredRun(
        Run(before, steps),
        read_batches(folder / "seen.npz") or [],
        {Key(kind, name): line for kind, name, line in made["lines"]},
        frozenset(made["first_only"]),
        made["strategies"],
    )


def _take(arrays: Any, at: str, told: Any) -> StepRecord:
    made = StepRecord(uncompared=set(told["uncompared"]))
    for i, (kind, name, epsilon) in enumerate(told["values"]):
        key = Key(kind, name)
        made.values[key], made.epsilon[key] = arrays[f"{at}/{i}"], epsilon
        if f"{at}/{i}/copies" in arrays:
            made.copies[key] = arrays[f"{at}/{i}/copies"]
    return made


def write_batches(path: pathlib.Path, given: Sequence[Iterable[np.ndarray]]) -> None:
    """Writes the rows of the arguments of each step."""
    arrays = {
        f"{i}/{j}": x for i, batch in enumerate(given) for j, x in enumerate(batch)
    }
    sizes = [len(list(batch)) for batch in given]
    np.savez(path, sizes=np.array(sizes, int), **arrays)  # type: ignore[arg-type]


def read_batches(path: pathlib.Path) -> list[list[np.ndarray]] | None:
    """Returns what `write_batches` has written; None if there is no file."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        sizes: Iterator[int] = map(int, arrays["sizes"])
        return [[arrays[f"{i}/{j}"] for j in range(n)] for i, n in enumerate(sizes)]


def write_values(path: pathlib.Path, values: dict[str, np.ndarray]) -> None:
    """Writes values by name."""
    names = np.array(list(values), dtype=str)
    arrays = {f"{i}": value for i, value in enumerate(values.values())}
    np.savez(path, names=names, **arrays)  # type: ignore[arg-type]


def read_values(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns what `write_values` has written; nothing if there is no file."""
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as arrays:
        return {str(n): arrays[f"{i}"] for i, n in enumerate(arrays["names"])}
