"""Runs a script on a number of replicas and records its first steps, as a process.

``python -m unisono._src.testing.script_process REQUEST`` reads a JSON file: the folder
for files, the number of replicas, the number of steps, the script and its arguments. It
uses ``initial.npz`` and ``batches.npz`` in place of the script's own if they are there.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import runpy
import sys
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.execution import call_observers
from unisono._src.input.distribution import steps
from unisono._src.machines import devices
from unisono._src.ops import random_state
from unisono._src.state import storage
from unisono._src.state.storage import Births, Cell
from unisono._src.strategies import resizing
from unisono._src.strategies.forced_replicas import ForcedReplicas
from unisono._src.testing import records, stored_runs, unwritten
from unisono._src.testing.records import Run, StepRecord
from unisono._src.training import gradient_taps
from unisono._src.values import distributed


@final
class ParityStopError(BaseException):
    """Ends a script after the steps that are compared; blocks that clean up see it."""


@final
class ScriptRecorder:
    """Records the calls of compiled functions that change variables.

    Args:
        folder: where files are read and written.
        replicas: the number of replicas.
        most: the number of steps after which the script ends.
    """

    def __init__(self, folder: pathlib.Path, replicas: int, most: int) -> None:
        self._folder = folder
        self._replicas = replicas
        self._most = most
        self._cells: set[Cell] = set()
        self._given = stored_runs.read_batches(folder / "batches.npz")
        self.taps = gradient_taps.GradientTaps()
        self.names = records.Names()
        self.run = Run(StepRecord())
        self.batches: list[list[np.ndarray]] = []

    def __call__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], start: Callable[..., Any]
    ) -> Any:
        """Makes a call of a compiled function, and records it if it is a step."""
        if not self.run.steps:
            self._begin()
        step = len(self.run.steps)
        before = {c: c.array for c in storage.live_cells()}
        leaves: list[Any]
        structure: Any
        leaves, structure = jax.tree.flatten((args, kwargs), is_leaf=_is_per_replica)
        found = [x for x in map(_gather, leaves) if x is not None]
        given = (self._given or [])[step : step + 1]
        if given and len(given[0]) == len(found):
            leaves = self._exchange(leaves, given[0])
            args, kwargs = structure.unflatten(leaves)
        result = start(args, kwargs)
        changed = {c for c in storage.live_cells() if c.array is not before.get(c)}
        # Other strategies of the script are the same in all runs.
        if not any(map(_is_resized, changed)):
            return result
        self._cells |= changed
        self.batches.append(found)
        made = records.record(result, self._cells, self.taps, self.names)
        self.run.steps.append(made)
        if len(self.run.steps) >= self._most:
            raise ParityStopError
        return result

    def _begin(self) -> None:
        """Gives the variables the values that they had on one device."""
        cells = [c for c in storage.live_cells() if c.home is None]
        if not self.batches:
            self._cells |= set(filter(_is_resized, cells))
        for cell in sorted(self._cells, key=lambda c: c.serial):
            self.names.name(cell)
        known = stored_runs.read_values(self._folder / "initial.npz")
        for cell in self._cells:
            value = known.get(self.names.name(cell))
            if value is not None and value.shape == cell.shape:
                array = jnp.asarray(value, cell.dtype)
                cell.move(cell.placement, resizing.share(cell, array, cell.copies))
        self.run.before = records.record(None, self._cells, self.taps, self.names)

    def _exchange(self, leaves: list[Any], given: list[np.ndarray]) -> list[Any]:
        """Returns the arguments of a call with other rows."""
        rest = iter(given)
        return [
            x if _gather(x) is None else self._replace(x, next(rest)) for x in leaves
        ]

    def _replace(self, leaf: Any, rows: np.ndarray) -> Any:
        if not _is_per_replica(leaf):
            return jnp.asarray(rows)
        cut = steps.chunks(len(rows), self._replicas)
        parts = [jnp.asarray(rows[start:stop]) for start, stop in cut]
        strategy = next(iter(ForcedReplicas.strategies))
        return strategy.experimental_distribute_values_from_function(
            lambda c: parts[c.replica_id_in_sync_group]
        )


def _is_resized(cell: Cell) -> bool:
    """Whether a variable belongs to a strategy with the wanted number of replicas."""
    placement = cell.placement
    return placement is not None and placement.strategy in ForcedReplicas.strategies


def _is_per_replica(x: object) -> bool:
    return isinstance(x, distributed.PerReplica)


def _gather(leaf: Any) -> np.ndarray | None:
    """Returns the rows of an argument, of all replicas; None if it has none."""
    if _is_per_replica(leaf):
        parts = [np.asarray(part) for part in leaf.values]
        return np.concatenate(parts) if all(p.ndim for p in parts) else None
    is_array = isinstance(leaf, (jax.Array, np.ndarray)) and leaf.ndim > 0
    is_plain = is_array and leaf.dtype.kind in "fiub"
    return np.array(leaf) if is_plain else None


def main(request: dict[str, Any]) -> None:
    """Runs the script of a request, and leaves its record in the folder."""
    folder = pathlib.Path(request["folder"])
    ForcedReplicas.count = request["replicas"]
    config: Any = jax.config  # Not all versions of JAX declare the attribute.
    if config.jax_platforms in (None, "", "cpu"):
        devices.set_virtual_devices(max(8, request["replicas"]))
    random.seed(0)
    np.random.seed(0)
    random_state.set_seed(0)
    sys.argv = [request["script"], *request["args"]]
    sys.path.insert(0, str(pathlib.Path(request["script"]).resolve().parent))
    recorder = ScriptRecorder(folder, request["replicas"], request["steps"])
    Births.seen = {}
    with (
        contextlib.suppress(ParityStopError),
        contextlib.ExitStack() as stack,
    ):
        if not request["write"]:
            stack.enter_context(unwritten.nothing_is_written())
        stack.enter_context(gradient_taps.collect(recorder.taps))
        stack.enter_context(call_observers.observe_calls(recorder))
        runpy.run_path(request["script"], run_name="__main__")
    stored_runs.write(folder, recorder, len(ForcedReplicas.strategies))


if __name__ == "__main__":
    main(json.loads(pathlib.Path(sys.argv[1]).read_text()))
