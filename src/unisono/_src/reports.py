"""Tables of where variables live."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from unisono._src import nest, state, variables


@dataclasses.dataclass(frozen=True)
class Row:
    """One variable of a description."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    placement: str
    devices: int
    bytes_per_device: int


@dataclasses.dataclass(frozen=True)
class Description:
    """Where variables live; prints as a table.

    Attributes:
        rows: one per variable.
    """

    rows: tuple[Row, ...]

    @property
    def bytes_per_device(self) -> int:
        """Sum over the variables."""
        return sum(r.bytes_per_device for r in self.rows)

    @property
    def table(self) -> Any:
        """A `rich.table.Table`."""
        import rich.table

        table = rich.table.Table(title="Where each variable lives")
        table.add_column("variable", no_wrap=True)
        for head in ("shape", "type", "placement"):
            table.add_column(head, no_wrap=True)
        for head in ("devices", "bytes"):
            table.add_column(head, justify="right", no_wrap=True)
        for r in self.rows:
            table.add_row(
                r.name,
                str(r.shape),
                r.dtype,
                r.placement,
                str(r.devices),
                f"{r.bytes_per_device:,}",
            )
        table.add_section()
        table.add_row("total", "", "", "", "", f"{self.bytes_per_device:,}")
        return table

    def __str__(self) -> str:
        import rich.console

        console = rich.console.Console(width=100, color_system=None)
        with console.capture() as captured:
            console.print(self.table)
        return captured.get()


def describe(tree: Any) -> Description:
    """A description of every variable in a nested structure."""
    found = [v for v in nest.leaves(tree) if isinstance(v, variables.Variable)]
    return Description(tuple(_row(v) for v in found))


def _row(variable: variables.Variable) -> Row:
    cell = variable._cell
    spread = cell.policy in (state.Policy.MIRRORED, state.Policy.ON_READ)
    return Row(
        variable.name,
        cell.shape,
        str(np.dtype(cell.dtype)),
        cell.policy.value,
        cell.copies if spread else 1,
        int(np.prod(cell.shape)) * np.dtype(cell.dtype).itemsize,
    )
