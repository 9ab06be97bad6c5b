"""Runs a step on a number of replicas, always from the same state."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, final

import jax
import numpy as np

from unisono._src.execution import equations, function, program_cache
from unisono._src.foundation import global_seed
from unisono._src.foundation.options import VariableAggregation
from unisono._src.ops import random_state
from unisono._src.state import storage
from unisono._src.state.storage import Births, Cell
from unisono._src.strategies import resizing
from unisono._src.strategies.base import Strategy
from unisono._src.testing import batches as rows, last_digits, records
from unisono._src.testing.comparison import Difference
from unisono._src.testing.records import Key, Run
from unisono._src.training import gradient_taps

_serial = itertools.count()


@final
class Runner:
    """Runs one step as often as wanted, each time from the state that it was made in.

    Args:
        step: the step.
        strategy: the strategy whose replicas run it.
        is_distributed: whether the step gets its part of a batch per replica; else it
            gets global batches.

    Attributes:
        count: how many runs were made.
        names: the names of the variables.
        taps: where the gradients are.
    """

    def __init__(
        self, step: Callable[..., Any], strategy: Strategy, is_distributed: bool
    ) -> None:
        self._step = step
        self._strategy = strategy
        self._is_distributed = is_distributed
        self._id = next(_serial)
        self._worlds: set[Hashable] = set()
        self._births: dict[Cell, Any] = {}
        self._changed: set[Cell] = set()
        self.taps = gradient_taps.GradientTaps()
        self.names = records.Names()
        self.count = 0

    def run(
        self,
        replicas: int,
        given: Sequence[rows.Batch],
        fresh: bool = False,
        digits: int = 0,
    ) -> Run:
        """Runs the step once for each batch, and returns what it has shown.

        Args:
            replicas: the number of replicas.
            given: global batches.
            fresh: whether the step is traced anew.
            digits: which other last digits the weights begin with; zero for none.
        """
        self.count += 1
        world = ("parity", self._id, replicas, self.count if fresh else 0)
        self._worlds.add(world)
        with (
            same_state(self._births),
            resizing.resized(self._strategy, replicas),
            program_cache.separate_programs(world),
            gradient_taps.collect(self.taps),
        ):
            self._begin()
            self._change_digits(digits)
            return self._run(given)

    def _begin(self) -> None:
        """Gives the variables that earlier runs have made their first values."""
        for cell, value in self._births.items():
            placement = cell.placement
            count = 1 if placement is None else placement.topology.replicas
            cell.move(placement, resizing.share(cell, value, count))

    def _change_digits(self, digits: int) -> None:
        """Gives the weights other last digits, the same on any number of replicas."""
        for cell in storage.live_cells() if digits else ():
            if self._is_own(cell):
                name = self.names.name(cell)
                change_digits(cell, records.kind_of(cell, self.taps), name, digits)

    def _run(self, given: Sequence[rows.Batch]) -> Run:
        before = {c: c.array for c in storage.live_cells()}
        self._changed |= set(filter(self._is_own, before))
        made = Run(records.record(None, self._changed, self.taps, self.names))
        source: Any = given
        if self._is_distributed:
            source = self._strategy.experimental_distribute_dataset(list(given))
        for batch in source:
            result = rows.call(self._step, batch)
            jax.block_until_ready(jax.tree.leaves(result))
            self._changed |= {
                c
                for c in storage.live_cells()
                if c.array is not before.get(c) or self._is_own(c)
            }
            made.steps.append(
                records.record(result, self._changed, self.taps, self.names)
            )
        # Variables that the first step has made were there with their first values.
        for cell in (self._changed & (Births.seen or {}).keys()) - before.keys():
            key = Key(records.kind_of(cell, self.taps), self.names.name(cell))
            made.before.add(key, (Births.seen or {})[cell])
        return made

    def is_first_only(self, name: str) -> bool:
        """Whether a variable keeps the value of the first replica."""
        cell = self.names.find(name)
        first = VariableAggregation.ONLY_FIRST_REPLICA
        return cell is not None and cell.aggregation is first

    def find_line(self, difference: Difference) -> str | None:
        """Returns file and line of the code that made a value, if it is known."""
        key = difference.key
        cell = None if key.kind == records.RESULT else self.names.find(key.name)
        if cell is not None and key.kind == records.GRADIENT:
            return self.taps.lines.get(cell)
        if cell is not None:
            return cell.origin
        code = getattr(function.python_function(self._step), "__code__", None)
        return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"

    def find_half_precision(self) -> float:
        """Returns the rounding of the products that the runs compute in 16 bits.

        Returns:
            Zero if they compute none, or run as plain Python.
        """
        products = ("dot_general", "conv_general_dilated")
        types = {
            equations.aval_of(x).dtype
            for world in self._worlds
            for jaxpr in program_cache.find_programs(world)
            for eqn in equations.walk(jaxpr)
            if eqn.primitive.name in products
            for x in eqn.invars
        }
        return max(
            (records.rounding_of(t) for t in types if t.itemsize == 2), default=0
        )

    def _is_own(self, cell: Cell) -> bool:
        placement = cell.placement
        return placement is not None and placement.strategy is self._strategy

    def close(self) -> None:
        """Drops the programs that the runs have compiled."""
        for world in self._worlds:
            program_cache.forget_programs(world)


def change_digits(cell: Cell, kind: str, name: str, digits: int) -> None:
    """Gives a variable other last digits, if it is a weight."""
    if kind == records.VARIABLE and not cell.is_stacked:
        changed = last_digits.change(np.asarray(cell.array), name, digits)
        cell.move(cell.placement, jax.device_put(changed, cell.array.sharding))


@contextlib.contextmanager
def same_state(births: dict[Cell, Any]) -> Iterator[None]:
    """Restores all variables and random states of the process after a block.

    Args:
        births: gets the first values of the variables that the block makes.
    """
    before = {c: c.array for c in storage.live_cells() if c.home is None}
    for cell in before:
        cell.escape()
    numbers, plain = np.random.get_state(), random.getstate()
    seed = random_state.get_state()
    if global_seed.get_seed() is None:
        # Without a seed two runs would differ.
        global_seed.set_seed(0)
    outer, Births.seen = Births.seen, {}
    try:
        yield
    finally:
        births.update((c, v) for c, v in Births.seen.items() if c not in before)
        Births.seen = outer
        np.random.set_state(numbers)
        random.setstate(plain)
        random_state.set_state(seed)
        for cell in storage.live_cells():
            if cell in before and cell.array is not before[cell]:
                cell.move(cell.placement, before[cell])
            elif cell in births:
                count = 1 if cell.placement is None else cell.copies
                cell.move(cell.placement, resizing.share(cell, births[cell], count))
