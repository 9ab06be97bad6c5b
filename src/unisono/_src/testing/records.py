"""What a run shows after each step: results, gradients, variables, slots, metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from unisono._src.foundation.options import VariableAggregation
from unisono._src.state import storage, variable_identity
from unisono._src.state.storage import Cell, Policy
from unisono._src.training.gradient_taps import GradientTaps
from unisono._src.values import distributed

# The kinds of values, those that come first in a step before those that follow them.
BATCH, GRADIENT, METRIC, STATE, RESULT, SLOT, VARIABLE = KINDS = (
    "batch",
    "gradient",
    "metric",
    "state",
    "result",
    "slot",
    "variable",
)


@final
class Key(NamedTuple):
    """Names a value of a step: its kind, and its name."""

    kind: str
    name: str

    def __str__(self) -> str:
        named = f" {self.name}" if self.name else ""
        return f"{self.kind}{named}"


@final
@dataclasses.dataclass
class StepRecord:
    """The values after one step.

    Attributes:
        values: the values, as numbers of 64 bits.
        epsilon: for each, the relative rounding of its element type.
        copies: for each gradient, that of each replica.
        uncompared: results that are no single value on several replicas.
    """

    values: dict[Key, np.ndarray] = dataclasses.field(default_factory=dict)
    epsilon: dict[Key, float] = dataclasses.field(default_factory=dict)
    copies: dict[Key, np.ndarray] = dataclasses.field(default_factory=dict)
    uncompared: set[str] = dataclasses.field(default_factory=set)

    def add(self, key: Key, value: Any) -> None:
        """Adds a value, if it is of numbers."""
        found = to_numbers(value)
        if found is not None:
            self.values[key] = found[0]
            self.epsilon[key] = found[1]


@final
@dataclasses.dataclass
class Run:
    """A run.

    Attributes:
        before: the variables before the first step.
        steps: the values after each step.
    """

    before: StepRecord
    steps: list[StepRecord] = dataclasses.field(default_factory=list)

    def signal(self, step: int, key: Key) -> np.ndarray | None:
        """Returns what a step has made of a value: of a variable, its change."""
        value = self.steps[step].values.get(key)
        if value is None or key.kind != VARIABLE:
            return value
        old = (self.steps[step - 1] if step else self.before).values.get(key)
        return value if old is None or old.shape != value.shape else value - old


def to_numbers(value: Any) -> tuple[np.ndarray, float] | None:
    """Returns numbers of 64 bits, and the rounding of their type; None for others."""
    if isinstance(value, jax.Array) and jnp.issubdtype(
        value.dtype, jax.dtypes.prng_key
    ):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    if array.dtype == object or array.dtype.names:
        return None
    epsilon = rounding_of(array.dtype)
    wide = np.complex128 if jnp.issubdtype(array.dtype, np.complexfloating) else None
    try:
        # A copy: a later step may donate the memory that NumPy would share.
        return np.array(array, wide or np.float64), epsilon
    except (TypeError, ValueError):
        return None


def rounding_of(dtype: np.dtype[Any]) -> float:
    """Returns the relative rounding of an element type; zero for whole numbers."""
    if dtype == np.float64:
        # A Python number that a step returns was computed in the types of JAX.
        dtype = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    finfo: Any = ml_dtypes.finfo
    return float(finfo(dtype).eps) if jnp.issubdtype(dtype, jnp.inexact) else 0.0


@final
class Names:
    """Gives each cell a name that no other has, in the order of their making."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}
        self._names: dict[Cell, str] = {}

    def name(self, cell: Cell) -> str:
        """Returns the name of a cell."""
        if cell not in self._names:
            count = self._taken[cell.name] = self._taken.get(cell.name, 0) + 1
            again = "" if count == 1 else f" ({count})"
            self._names[cell] = cell.name + again
        return self._names[cell]

    def cells(self) -> list[Cell]:
        """Returns the cells that have a name."""
        return list(self._names)

    def find(self, name: str) -> Cell | None:
        """Returns the cell of a name."""
        return next((c for c, n in self._names.items() if n == name), None)


def kind_of(cell: Cell, taps: GradientTaps) -> str:
    """Returns what the variable of a cell is in a step."""
    if cell in taps.slots:
        return SLOT
    if cell.policy is Policy.ON_READ and cell.aggregation is VariableAggregation.SUM:
        return METRIC
    found = variable_identity.find(cell)
    return VARIABLE if found is not None and found.trainable else STATE


def record(
    result: object,
    cells: Iterable[Cell],
    taps: GradientTaps,
    names: Names,
    is_stacked: bool = False,
) -> StepRecord:
    """Returns the values after a step.

    Args:
        result: what the step returned.
        cells: the variables to look at.
        taps: where the gradients are.
        names: the names of the variables.
        is_stacked: whether one number per replica is a result.
    """
    made = StepRecord()
    own = {v.state_cell for v in taps.by_cell.values()}
    for cell in sorted(cells, key=lambda c: c.serial):
        if cell not in own and frames_has_value(cell):
            made.add(Key(kind_of(cell, taps), names.name(cell)), _read(cell))
    for cell, tap in taps.by_cell.items():
        key = Key(GRADIENT, names.name(cell))
        found = to_numbers(tap.state_cell.array)
        if found is not None:
            copies = found[0] if tap.state_cell.is_stacked else found[0][None]
            made.copies[key] = copies
            made.values[key], made.epsilon[key] = copies.sum(0), found[1]
    _add_results(made, result, is_stacked)
    return made


def frames_has_value(cell: Cell) -> bool:
    """Whether a cell has a value that this process can read."""
    return cell.home is None and cell.array is not None and not cell.array.is_deleted()


def _read(cell: Cell) -> Any:
    """Returns the value that all copies of a cell stand for together."""
    with storage.LOCK:
        array = cell.array
        if not cell.is_stacked:
            return array
        rows = np.array(array, copy=True)
    if cell.aggregation is VariableAggregation.SUM:
        return rows.sum(0)
    return rows.mean(0) if cell.aggregation is VariableAggregation.MEAN else rows[0]


def _add_results(made: StepRecord, result: object, is_stacked: bool) -> None:
    """Adds what the step returned, value by value."""
    leaves = jax.tree_util.tree_flatten_with_path(
        result, is_leaf=lambda x: isinstance(x, distributed.DistributedValues)
    )[0]
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path)
        if not isinstance(leaf, distributed.PerReplica):
            made.add(Key(RESULT, name), leaf)
            continue
        parts = [np.asarray(part) for part in leaf.values]
        if is_stacked and not any(part.ndim for part in parts):
            made.add(Key(RESULT, name), np.stack(parts))
        elif all(part.ndim for part in parts):
            made.add(Key(RESULT, name), np.concatenate(parts))
        else:
            made.uncompared.add(name or "result")
