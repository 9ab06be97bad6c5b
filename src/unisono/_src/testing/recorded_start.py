"""Starts a ported program from the values and batches of a recording."""

from __future__ import annotations

import gc
import json
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import jax.numpy as jnp
import numpy as np

from unisono._src.state.storage import Cell
from unisono._src.strategies import resizing
from unisono._src.testing import last_digits, matching, recorder, records
from unisono._src.testing.matching import Matching, Named
from unisono._src.testing.recordings import Recording
from unisono._src.testing.records import METRIC, STATE, Names
from unisono._src.training.gradient_taps import GradientTaps


@final
class RecordedStart:
    """What the steps of a ported program begin with.

    Args:
        recording: what the original has done.
        given: names of variables of the original, and of the ported program.
        is_turned: whether the rows of each part come in the other order, and weights
            begin with other last digits.
        is_swapped: whether variables that only their order has paired are paired in
            the other order.
    """

    def __init__(
        self,
        recording: Recording,
        given: Mapping[str, str],
        is_turned: bool,
        is_swapped: bool,
    ) -> None:
        self._recording = recording
        self._given = given
        self._is_turned = is_turned
        self._is_swapped = is_swapped
        self._matching = Matching()
        self._own: list[Named] = []
        self._unset: list[str] = []
        self._use = "own"

    def set_values(
        self, cells: Iterable[Cell], taps: GradientTaps, names: Names
    ) -> None:
        """Gives the variables the values of the original's."""
        taken = {v.state_cell for v in taps.by_cell.values()}
        own = [c for c in cells if c not in taken and records.frames_has_value(c)]
        own.sort(key=lambda c: c.serial)
        by_name = {names.name(c): c for c in own}
        self._own = [
            Named(name, _kind(records.kind_of(cell, taps)), tuple(cell.shape))
            for name, cell in by_name.items()
        ]
        old = [Named(v.name, v.kind, v.first.shape) for v in self._recording.variables]
        self._matching = matching.match(old, self._own, self._given)
        if self._is_swapped:
            self._swap(old)
        self._unset = []
        for number, name in self._matching.pairs.items():
            variable = self._recording.variables[number]
            cell, value = by_name.get(name), variable.first
            if self._is_turned and variable.kind == "variable":
                value = last_digits.change(value, name, 1)
            if cell is None or not _set_value(cell, value):
                self._unset.append(name)

    def _swap(self, old: list[Named]) -> None:
        groups: dict[object, list[int]] = {}
        for number in sorted(self._matching.by_order):
            groups.setdefault(old[number][1:], []).append(number)
        for numbers in groups.values():
            names = [self._matching.pairs[n] for n in numbers]
            self._matching.pairs.update(zip(numbers, reversed(names), strict=True))

    def find_batch(self, step: int) -> list[tuple[np.ndarray, list[int]]]:
        """Returns the arrays of a step with the sizes of the replicas' parts."""
        if step >= len(self._recording.steps):
            return []
        found = self._recording.steps[step]
        turn = slice(None, None, -1 if self._is_turned else 1)
        return [
            (np.concatenate([part[turn] for part in parts]), sizes)
            for parts, sizes in zip(found.batch, found.sizes(), strict=True)
        ]

    def note_use(self, kind: str) -> None:
        """Notes what a step got: ``"parts"``, ``"global"`` batches or its ``"own"``."""
        self._use = kind

    def write(self, path: pathlib.Path) -> None:
        """Writes which variable is which, and the settings of the optimizers."""
        used = set(self._matching.pairs.values())
        made = {
            "pairs": list(self._matching.pairs.items()),
            "by_order": sorted(self._matching.by_order),
            "unset": self._unset,
            "extra": [v.name for v in self._own if v.name not in used and _counts(v)],
            "optimizers": _find_optimizers(),
            "use": self._use,
        }
        path.write_text(json.dumps(made))


def _counts(variable: Named) -> bool:
    return variable.kind == "variable"


def _kind(kind: str) -> str:
    return "state" if kind in (METRIC, STATE) else kind


def _set_value(cell: Cell, value: np.ndarray) -> bool:
    """Gives a variable a value, unless it cannot hold it."""
    if tuple(cell.shape) != value.shape:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        cast = value.astype(cell.dtype)
    if value.dtype.kind in "iu" and not np.array_equal(cast, value):
        return False
    cell.move(cell.placement, resizing.share(cell, jnp.asarray(cast), cell.copies))
    return True


def _find_optimizers() -> list[dict[str, Any]]:
    """Returns the settings of Keras' optimizers that have been used."""
    keras = sys.modules.get("keras")
    if keras is None:
        return []
    kind = keras.optimizers.Optimizer
    found = [o for o in gc.get_objects() if issubclass(type(o), kind) and o.built]
    return [recorder.describe(o) for o in found]


# A call of a function, and how it is made with these arguments or others.
Observer = Callable[[tuple[Any, ...], dict[str, Any], Callable[..., Any]], Any]


def run_script(script: str, step: str | None, observer: Observer) -> None:
    """Runs a script; calls of the function that is its step go to an observer."""

    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return observer(args, kwargs, lambda a, k: function(*a, **k))

    recorder.run_script(script, step, call)
