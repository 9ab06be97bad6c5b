"""Describes where variables live, as a table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, final

import jax

from unisono._src.foundation import nest, tables
from unisono._src.state import storage, variables
from unisono._src.values import array_operators

_TITLE = "Where each variable lives"
_HEADS = ("variable", "shape", "type", "placement", "devices", "bytes")


@final
@dataclasses.dataclass(frozen=True)
class Row:
    """One variable, or array, of a description.

    Attributes:
        name: its name or path.
        shape: its shape.
        dtype: its element type.
        placement: how it is kept, such as "mirrored" or "sharded".
        devices: the number of devices that hold it or a part of it.
        bytes_per_device: the memory that it takes on each of them.
        servers: the parameter servers that hold it.
        cut: with sharded state, the axis that is cut, the parts and the reason, or why
            it is whole; else "".
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    placement: str
    devices: int
    bytes_per_device: int
    servers: tuple[int, ...] = ()
    cut: str = ""

    @classmethod
    def on_servers(
        cls, name: str, shape: tuple[int, ...], dtype: Any, servers: tuple[int, ...]
    ) -> Row:
        """Returns the row of a variable that parameter servers hold.

        Args:
            name: its name.
            shape: its shape.
            dtype: its element type.
            servers: the numbers of the servers.
        """
        placement = f"on server {', '.join(map(str, servers))}"
        size = math.prod(shape) * dtype.itemsize
        return cls(name, shape, str(dtype), placement, len(servers), size, servers)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the row in a table."""
        size = f"{self.bytes_per_device:,}"
        kind = (self.name, str(self.shape), self.dtype, self.placement)
        return (*kind, str(self.devices), size)


@final
@dataclasses.dataclass(frozen=True)
class Description(tables.ShownAsTable):
    """A list of variables and where they are stored; it prints as a table.

    Attributes:
        rows: one per variable.

    >>> found = describe({"w": variables.Variable([1.0, 2.0], name="w")})
    >>> [(row.name, row.placement, row.bytes_per_device) for row in found.rows]
    [('w:0', 'one copy', 8)]
    >>> found.bytes_per_device
    8
    """

    rows: tuple[Row, ...]

    @property
    def bytes_per_device(self) -> int:
        """The memory that all variables together take on a device."""
        return sum(r.bytes_per_device for r in self.rows)

    @property
    def bytes_per_server(self) -> dict[int, int]:
        """The memory that the variables take on each parameter server.

        >>> describe([variables.Variable(1.0)]).bytes_per_server  # No servers.
        {}
        """
        found: dict[int, int] = {}
        for row in self.rows:
            for server in row.servers:
                found[server] = found.get(server, 0) + row.bytes_per_device
        return dict(sorted(found.items()))

    @property
    def _totals(self) -> list[tuple[str, ...]]:
        sizes = {f"server {i}": n for i, n in self.bytes_per_server.items()}
        if not all(row.servers for row in self.rows) or not sizes:
            sizes["total"] = self.bytes_per_device
        return [(name, "", "", "", "", f"{n:,}") for name, n in sizes.items()]

    def _table(self) -> tables.TextTable:
        texts, totals = [row.texts for row in self.rows], self._totals
        heads: tuple[str, ...] = _HEADS
        if any(row.cut for row in self.rows):
            # The numbers stay the last columns.
            cuts = [row.cut for row in self.rows]
            pairs = zip(texts, cuts, strict=True)
            texts = [(*t[:4], cut, *t[4:]) for t, cut in pairs]
            totals = [(*t[:4], "", *t[4:]) for t in totals]
            heads = (*heads[:4], "cut", *heads[4:])
        return tables.TextTable(_TITLE, heads, texts, totals, numbers=2, is_wide=True)


def describe(tree: Any) -> Description:
    """Returns a description of every variable and array in a structure.

    Args:
        tree: a variable or array, something that has `variables` such as a Keras
            model, or a nested structure or JAX pytree of them such as a Flax module.
    """
    return Description(tuple(_rows("", tree)))


def describe_scope(strategy: object) -> Description:
    """Returns a description of all variables of a strategy, or, for None, of all."""
    cells = storage.live_cells()
    found = [cell for cell in cells if strategy is None or cell.owner is strategy]
    return Description(tuple(_cell_row(f"{cell.name}:0", cell) for cell in found))


def _rows(name: str, x: Any) -> Iterator[Row]:
    """Yields a row for each variable and array in `x`, whose path is `name`."""
    kept = array_operators.find_own_variable(x)
    if isinstance(kept, variables.Variable):
        # A variable of another library is shown under the name it has there.
        known = kept.name if kept is x else getattr(x, "path", name)
        yield _cell_row(known or kept.name, kept.state_cell)
    elif isinstance(x, jax.Array):
        yield _array_row(name or "array", x)
    elif isinstance(getattr(x, "value", None), jax.Array):
        yield _array_row(getattr(x, "path", name), x.value)
    elif isinstance(getattr(x, "variables", None), list):
        yield from _owner_rows(x)
    elif nest.is_nested(x):
        pairs = x.items() if isinstance(x, Mapping) else enumerate(x)
        for key, child in pairs:
            yield from _rows(f"{name}.{key}" if name else str(key), child)
    else:
        yield from _tree_rows(name, x)


def _owner_rows(x: Any) -> Iterator[Row]:
    """Yields the rows of a model's variables, and of those of its optimizer."""
    for variable in x.variables:
        yield from _rows("", variable)
    optimizer = getattr(x, "optimizer", None)
    if isinstance(getattr(optimizer, "variables", None), list):
        yield from _owner_rows(optimizer)


def _tree_rows(name: str, x: Any) -> Iterator[Row]:
    """Yields the rows of a JAX pytree, such as a Flax module."""
    flat, _ = jax.tree_util.tree_flatten_with_path(
        x, is_leaf=lambda y: y is not x and _is_whole(y)
    )
    for path, leaf in flat:
        if leaf is not x:
            inner = jax.tree_util.keystr(path, simple=True, separator=".")
            yield from _rows(f"{name}.{inner}" if name else inner, leaf)


def _is_whole(x: Any) -> bool:
    """Whether `_rows` handles `x` as one object, although JAX could take it apart."""
    if isinstance(array_operators.find_own_variable(x), variables.Variable):
        return True
    return isinstance(getattr(x, "variables", None), list)


def _cell_row(name: str, cell: storage.Cell) -> Row:
    # Each device has a whole copy, or a whole value of its own.
    spread = cell.policy in (storage.Policy.MIRRORED, storage.Policy.ON_READ)
    size = math.prod(cell.shape) * cell.dtype.itemsize
    placement, devices = cell.policy.value, cell.copies if spread else 1
    if cell.home is not None:
        return Row.on_servers(name, cell.shape, cell.dtype, cell.home.servers)
    if cell.split is not None:
        placement, devices = "sharded", len(cell.sharding.device_set)
        size //= cell.split.parts
    kind = str(cell.dtype), placement, devices, size
    return Row(name, cell.shape, *kind, cut=cell.cut_text)


def _array_row(name: str, array: jax.Array) -> Row:
    count = len(array.sharding.device_set)
    placement = storage.Policy.PLAIN.value
    if count > 1:
        is_same = array.sharding.is_fully_replicated
        placement = storage.Policy.MIRRORED.value if is_same else "split"
    part = math.prod(array.sharding.shard_shape(array.shape))
    return Row(
        name,
        array.shape,
        str(array.dtype),
        placement,
        count,
        part * array.dtype.itemsize,
    )
