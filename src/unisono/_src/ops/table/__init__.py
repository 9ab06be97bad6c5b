"""The table of TensorFlow's everyday names, from which functions and pages are made."""

from __future__ import annotations

from unisono._src.ops.table import (
    arithmetic,
    arrays,
    control,
    convolutions,
    debugging,
    environment,
    indexing,
    linalg,
    maths,
    nn,
    random,
    reductions,
)
from unisono._src.ops.table.name import Name

# The areas of the table. The functions of each are written to a module of its name.
AREAS: dict[str, tuple[Name, ...]] = {
    "arithmetic": arithmetic.ROWS,
    "arrays": arrays.ROWS,
    "convolutions": convolutions.ROWS,
    "indexing": indexing.ROWS,
    "linalg": linalg.ROWS,
    "maths": maths.ROWS,
    "nn": nn.ROWS,
    "reductions": reductions.ROWS,
}

# Areas whose functions are written by hand, in the modules that their rows name.
WRITTEN: tuple[tuple[Name, ...], ...] = (
    control.ROWS,
    debugging.ROWS,
    environment.ROWS,
    random.ROWS,
)

NAMES: dict[str, Name] = {
    path: row
    for rows in (*AREAS.values(), *WRITTEN)
    for row in rows
    for path in (row.path, *row.also)
}
