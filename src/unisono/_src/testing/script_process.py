"""Runs a script on a number of replicas and records its first steps, as a process.

``python -m unisono._src.testing.script_process REQUEST`` reads a JSON file: the folder
for files, the number of replicas, the number of steps, the script and its arguments. It
uses ``initial.npz`` and ``batches.npz`` in place of the script's own if they are there.
With ``recorded``, the folder of a recording, it begins with what TensorFlow had.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.execution import call_modes
from unisono._src.input.distribution import steps
from unisono._src.machines import devices
from unisono._src.ops import random_state
from unisono._src.state import storage, variable_identity
from unisono._src.state.storage import Births, Cell
from unisono._src.strategies import current, resizing
from unisono._src.strategies.base import Strategy
from unisono._src.strategies.mirrored import ForcedReplicas
from unisono._src.testing import (
    recorded_start,
    recordings,
    records,
    runs,
    stored_runs,
    unwritten,
)
from unisono._src.testing.recorded_start import RecordedStart
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
        recorded: what the steps begin with, if it is a recording.
        digits: which other last digits the weights begin with; zero for none.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        replicas: int,
        most: int,
        recorded: RecordedStart | None = None,
        digits: int = 0,
    ) -> None:
        self._folder = folder
        self._replicas = replicas
        self._most = most
        self._cells: set[Cell] = set()
        self._recorded = recorded
        self._digits = digits
        self._is_open = False
        self._given = stored_runs.read_batches(folder / "batches.npz")
        self.taps = gradient_taps.GradientTaps()
        self.names = records.Names()
        self.run = Run(StepRecord())
        self.batches: list[list[np.ndarray]] = []

    def __call__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], start: Callable[..., Any]
    ) -> Any:
        """Makes a call of a compiled function, and records it if it is a step."""
        if self._is_open:
            return start(args, kwargs)
        self._is_open = True
        try:
            return self._observe(args, kwargs, start)
        finally:
            self._is_open = False

    def _observe(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], start: Callable[..., Any]
    ) -> Any:
        if not self.run.steps and self._recorded is None:
            self._begin()
        leaves: list[Any]
        structure: Any
        leaves, structure = jax.tree.flatten((args, kwargs), is_leaf=_is_per_replica)
        found = [x for x in map(_gather, leaves) if x is not None]
        given = self._find_batch(len(self.run.steps))
        if given and len(given) == len(found):
            if self._recorded is not None:
                is_cut = any(map(_is_per_replica, leaves))
                self._recorded.note_use("parts" if is_cut else "global")
            leaves = self._exchange(leaves, given)
            args, kwargs = structure.unflatten(leaves)
        if not self.run.steps and self._recorded is not None:
            with runs.same_state({}):
                start(args, kwargs)  # It makes variables, and is undone.
            self._begin_as_recorded(self._recorded)
        before = {c: c.array for c in storage.live_cells()}
        result = start(args, kwargs)
        changed = {c for c in storage.live_cells() if c.array is not before.get(c)}
        if not any(map(self._is_of_step, changed)):
            return result
        self._cells |= changed
        self.batches.append(found)
        made = records.record(
            result, self._cells, self.taps, self.names, self._recorded is not None
        )
        self.run.steps.append(made)
        if len(self.run.steps) >= self._most:
            raise ParityStopError
        return result

    def _is_of_step(self, cell: Cell) -> bool:
        """Whether a call that changes a variable is a step."""
        if self._recorded is None:
            return _is_resized(cell)  # Others are the same in all runs.
        known = variable_identity.find(cell)
        is_tap = any(cell is v.state_cell for v in self.taps.by_cell.values())
        return is_tap or (known is not None and known.trainable)

    def _find_batch(self, step: int) -> list[tuple[np.ndarray, list[int]]]:
        """Returns the arrays for a step, each with the sizes of the replicas' parts."""
        if self._recorded is not None:
            return self._recorded.find_batch(step)
        given = (self._given or [])[step : step + 1]
        return [(rows, self._sizes(rows)) for batch in given for rows in batch]

    def _sizes(self, rows: np.ndarray) -> list[int]:
        return [b - a for a, b in steps.chunks(len(rows), self._replicas)]

    def _begin_as_recorded(self, recorded: RecordedStart) -> None:
        """Gives the variables the values that they had in TensorFlow."""
        self._cells = {c for c in storage.live_cells() if c.home is None}
        recorded.set_values(self._cells, self.taps, self.names)
        self.run.before = records.record(None, self._cells, self.taps, self.names)

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
            if self._digits:
                kind, name = records.kind_of(cell, self.taps), self.names.name(cell)
                runs.change_digits(cell, kind, name, self._digits)
        self.run.before = records.record(None, self._cells, self.taps, self.names)

    def _exchange(
        self, leaves: list[Any], given: list[tuple[np.ndarray, list[int]]]
    ) -> list[Any]:
        """Returns the arguments of a call with other rows."""
        rest = iter(given)
        return [
            x if _gather(x) is None else self._replace(x, *next(rest)) for x in leaves
        ]

    def _replace(self, leaf: Any, rows: np.ndarray, sizes: list[int]) -> Any:
        if not _is_per_replica(leaf):
            return rows if isinstance(leaf, np.ndarray) else jnp.asarray(rows)
        if len(sizes) != self._replicas:
            sizes = self._sizes(rows)
        cut = np.split(rows, np.cumsum(sizes)[:-1])
        parts = [jnp.asarray(part) for part in cut]
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
    seed = request.get("seed", 0)
    random.seed(seed)
    np.random.seed(seed)
    random_state.set_seed(seed)
    sys.argv = [request["script"], *request["args"]]
    recording = None
    if request.get("recorded"):
        recording = recordings.read(pathlib.Path(request["recorded"]))
    recorded = recording and RecordedStart(
        recording, request["map"], request["turned"], request["swapped"]
    )
    recorder = ScriptRecorder(
        folder,
        request["replicas"],
        request["steps"],
        recorded,
        request.get("digits", 0),
    )
    Births.seen = {}
    with (
        contextlib.suppress(ParityStopError),
        contextlib.ExitStack() as stack,
    ):
        if not request["write"]:
            stack.enter_context(unwritten.nothing_is_written())
        stack.enter_context(gradient_taps.collect(recorder.taps))
        stack.enter_context(call_modes.observe_calls(recorder))
        if recording is not None:
            stack.enter_context(_observe_runs(recorder))
            if not recording.has_strategy:
                # So variables of Keras are kept in ours, and can be seen.
                stack.enter_context(current.default_strategy().scope())
        step = None if recording is None else request["step"] or recording.step
        recorded_start.run_script(request["script"], step, recorder)
    stored_runs.write(folder, recorder, len(ForcedReplicas.strategies))
    if recorded is not None:
        recorded.write(folder / "port.json")


@contextlib.contextmanager
def _observe_runs(recorder: ScriptRecorder) -> Iterator[None]:
    """Has calls of `Strategy.run` outside of compiled functions recorded, too."""
    original = Strategy.run

    def run(
        self: Strategy, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        def start(args: Any, kwargs: Any) -> Any:
            return original(self, fn, args, kwargs, options)

        return recorder(tuple(args), dict(kwargs or {}), start)

    with unwritten.replaced(Strategy, "run", run):
        yield


if __name__ == "__main__":
    main(json.loads(pathlib.Path(sys.argv[1]).read_text()))
