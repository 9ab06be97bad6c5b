"""Loops that run on the host, with one compiled step for all their turns.

A loop whose body takes elements of an iterator or runs a step of all replicas is no
part of a program. Its body becomes a `unisono.function` of its own. What the body reads
from the function around it are arguments, by the cells of Python's closures; so the
same program serves every turn, and every call of the function around it.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from unisono._src.autograph import carried, growing_arrays
from unisono._src.autograph.carried import UNDEFINED, Symbol
from unisono._src.execution import conversion, function, host_inputs, signature
from unisono._src.foundation import ambient, nest
from unisono._src.ops import bodies

# Cells of converted code that hold no values of the user's.
_OWN = ("ag__symbol_", "ag__loop_", "ag__if_", "ag__else_")


@final
class _Current(ambient.PerThread):
    """The loop whose body is traced, or runs, in this thread."""

    loop: HostLoop | None = None


_current = _Current()


def run(
    items: Iterable[Any] | None,
    test: Callable[[], Any] | None,
    body: Callable[..., Any],
    symbols: Sequence[Symbol],
    letters: str,
) -> None:
    """Runs a loop on the host.

    Args:
        items: what it loops over; None for a `while`.
        test: returns whether to go on; None if nothing can end the loop early.
        body: runs a turn; takes the item if there are items.
        symbols: the names that it assigns.
        letters: how each of them is used later; see `rewriting`.
    """
    loop = HostLoop(test, body, symbols, letters, items is not None)
    if items is None:
        while loop.goes_on:
            loop.turn(None)
        return
    for item in items:
        loop.turn(item)
        if not loop.goes_on:
            return


@final
class HostLoop:
    """One run of a loop on the host.

    Attributes:
        goes_on: whether another turn follows.
    """

    def __init__(
        self,
        test: Callable[[], Any] | None,
        body: Callable[..., Any],
        symbols: Sequence[Symbol],
        letters: str,
        has_items: bool,
    ) -> None:
        self._test, self._body, self._has_items = test, body, has_items
        used = list(zip(symbols, letters, strict=True))
        self._symbols = symbols
        self._inputs = [s for s, x in used if x in "ic"]
        self._outputs = [s for s, x in used if x != "-"]
        for symbol in self._inputs:
            # As in a loop of a program, so that the first turn is like the others.
            value = carried.read(symbol)
            if type(value) in (bool, int, float):
                symbol.put(bodies.strong_array(value))
        cells = _Cells({s.name for s in symbols})
        key = [letters, *(cells.key_of(f) for f in (body, test) if f is not None)]
        self._cells = cells.found
        taken = {s.name for s in symbols}
        self._inputs += [s for s in cells.find_attributes() if s.name not in taken]
        host: Any = ambient.current().host
        self._step: function.Function[..., Any] = host.compiled_step(tuple(key), _step)
        self._notes = growing_arrays.Notes()
        self._given: list[Any] = []
        self.goes_on: Any = True if test is None or has_items else bool(test())

    def turn(self, item: object) -> None:
        """Runs one turn by the compiled step."""
        self._given = [carried.read(s) for s in self._inputs]
        given = self._notes.take(self._given)
        before, _current.loop = _current.loop, self
        try:
            more, values = self._step(item, given, [_content(c) for c in self._cells])
        finally:
            _current.loop = before
        carried.write(self._outputs, self._notes.give(values))
        self.goes_on = True if self._test is None else bool(more)

    def run_body(self, item: object, given: list[Any], contents: list[Any]) -> Any:
        """Runs the statements of a turn, in a program or as they are."""
        kept = [_content(c) for c in self._cells]
        every = list(dict.fromkeys([*self._symbols, *self._inputs]))
        state = [carried.read(s) for s in every]
        try:
            for cell, value, old in zip(self._cells, contents, kept, strict=True):
                # A container without arrays stays what it is: the body may change it.
                # Of another one it gets a copy, in which entries may be assigned.
                _fill(cell, _copy(value) if _has_arrays(old) else old)
            begin = [carried.read(s) for s in self._symbols]
            before = [_leaves(_content(c)) for c in self._cells]
            others = [s for s in self._symbols if s not in self._inputs]
            carried.write(others, [UNDEFINED] * len(others))
            carried.write(self._inputs, given if bodies.is_traced() else self._given)
            if item is not None:
                item = jnp.asarray(item)
            self._body(item) if self._has_items else self._body()
            more = True if self._test is None else self._test()
            values = [carried.read(s) for s in self._outputs]
            if bodies.is_traced():
                # Without the entries that are results of the turn.
                carried.write(self._symbols, begin)
                self._check_containers(before)
            return jnp.asarray(more), values
        finally:
            for cell, value in zip(self._cells, kept, strict=True):
                _fill(cell, value)
            carried.write(every, state)

    def _check_containers(self, before: Sequence[list[Any]]) -> None:
        """Raises if the body has put values into a list or dictionary from outside.

        Python runs it for the first turn only, so those of others would be missing.

        Raises:
            TypeError: it has.
        """
        for cell, old in zip(self._cells, before, strict=True):
            value = _content(cell)
            new = _leaves(value)
            is_same = len(old) == len(new) and all(map(operator.is_, old, new))
            if not is_same and _has_arrays(value):
                raise TypeError(
                    f"{carried.where()}A loop of steps puts values into a "
                    f"{type(value).__name__} that was made outside of it. Its body is "
                    "compiled once, and Python runs it for the first turn only. Assign "
                    "the value to a name, or write it into a TensorArray that has a "
                    "name; or make single calls of a compiled step."
                )


def _copy(value: object) -> Any:
    """Returns a container with the same leaves, and any other value itself."""
    return nest.map_structure(lambda x: x, value) if nest.is_nested(value) else value


def _leaves(value: object) -> list[Any]:
    """Returns the leaves of a container; none for other values."""
    return list(nest.leaves(value)) if nest.is_nested(value) else []


def _step(item: object, given: list[Any], contents: list[Any]) -> Any:
    """Runs a turn of the loop of this thread; this is what is compiled."""
    loop = _current.loop
    assert loop is not None
    return loop.run_body(item, given, contents)


def _has_arrays(value: object) -> bool:
    """Whether a value is, or a container has, something that a program computes."""
    if not nest.is_nested(value):
        return True
    leaves: list[Any] = []
    rest = signature.flatten(value, leaves, None)
    return bool(leaves or signature.find_iterators(rest))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # The name has no value.
        return UNDEFINED


def _fill(cell: types.CellType, value: object) -> None:
    if value is not UNDEFINED:
        cell.cell_contents = value


@final
class _Cells:
    """Finds the cells that a body reads, also through functions that it calls.

    Args:
        assigned: the names that the loop assigns; their cells are no arguments.

    Attributes:
        found: the cells whose contents are arguments of the step.
    """

    def __init__(self, assigned: set[str]) -> None:
        self.found: list[types.CellType] = []
        self._names: list[str] = []
        self._assigned = assigned
        self._numbers: dict[int, int] = {}

    def key_of(self, fn: Any, is_inner: bool = False) -> Any:
        """Returns by what functions of equal code and equal cells are known."""
        parts: list[Any] = []
        names = fn.__code__.co_freevars
        for name, cell in zip(names, fn.__closure__ or (), strict=True):
            is_state = not is_inner and name in self._assigned
            if id(cell) in self._numbers:
                parts.append(self._numbers[id(cell)])
                continue
            self._numbers[id(cell)] = len(self._numbers)
            value = _content(cell)
            if name == "ag__" or name.startswith(_OWN) or is_state:
                parts.append("own")
            elif _is_users(value):
                parts.append(self.key_of(value, is_inner=True))
            else:
                parts.append("value")
                self.found.append(cell)
                self._names.append(name)
        defaults = host_inputs.defaults_key(fn)
        return (fn.__code__, defaults, tuple(parts))

    def find_attributes(self) -> list[Symbol]:
        """Returns the arrays that objects of the user's have as attributes.

        The body, and methods that it calls, may read them. A program would keep them as
        they were in its first turn.
        """
        found = []
        for text, cell in zip(self._names, self.found, strict=True):
            owner = _content(cell)
            root = type(owner).__module__.partition(".")[0]
            is_plain = isinstance(owner, types.SimpleNamespace)
            if not is_plain and conversion.is_library_name(root):
                continue
            for name, value in getattr(owner, "__dict__", {}).items():
                if isinstance(value, jax.Array) and isinstance(name, str):
                    put = functools.partial(setattr, owner, name)
                    get = functools.partial(getattr, owner, name)
                    found.append(Symbol(f"{text}.{name}", get, put))
        return found


def _is_users(value: object) -> bool:
    """Whether a value is a function of the user's, which may read cells of its own."""
    return isinstance(value, types.FunctionType) and not conversion.is_library(
        value.__globals__, value.__code__
    )
