"""`value_and_grad` and `grad` with respect to variables.

JAX has no tape. A function of variables becomes a pure function of their values, which
JAX differentiates.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, final, overload

import jax
import numpy as np

from unisono._src.execution import gradient_tape
from unisono._src.foundation import ambient
from unisono._src.machines.topology import Topology
from unisono._src.state import (
    frames,
    rows as rows_lib,
    sharded_variable,
    trace_versions,
    variables,
)
from unisono._src.state.remote_state import Change
from unisono._src.state.storage import Cell
from unisono._src.values import array_operators

_P = ParamSpec("_P")
_Aux = TypeVar("_Aux")


@final
class GradientFrame(frames.StateFrame):
    """Gives the differentiated variables their traced values inside a gradient.

    All other reads, and all writes, go to the parent frame.

    Args:
        parent: the frame around the gradient.
        values: the traced value of each differentiated cell.
    """

    def __init__(self, parent: frames.StateFrame, values: dict[Cell, Any]) -> None:
        self.parent = parent
        self.traces = parent.traces
        self.is_compiled = parent.is_compiled
        self.versions = parent.versions
        self.values = dict(values)
        self._differentiated = dict(values)

    def whole(self, cell: Cell) -> Any:
        """Return the array that the cell stores."""
        trace_versions.check_reading(self.traces, self.versions, cell.name)
        found = self.values.get(cell)
        return self.parent.whole(cell) if found is None else found

    def copy(self, cell: Cell, index: int | None) -> Any:
        """Return the value that replica `index` sees."""
        trace_versions.check_reading(self.traces, self.versions, cell.name)
        found = self.values.get(cell)
        return self.parent.copy(cell, index) if found is None else found

    def set_whole(self, cell: Cell, value: jax.Array) -> None:
        """Replace the array that the cell stores."""
        # The parent outlives the gradient, so its value must not be part of it.
        value = frames.strip_gradient(value)
        self.parent.set_whole(cell, value)
        self.note_assignment(cell, value)

    def set_copy(self, cell: Cell, index: int | None, value: jax.Array) -> None:
        """Replace the value that replica `index` sees."""
        value = frames.strip_gradient(value)
        self.parent.set_copy(cell, index, value)
        self.note_assignment(cell, value)

    def rows(self, cell: Cell, rows: jax.Array | np.ndarray) -> Any:
        """Return some rows of the array that the cell stores."""
        if cell not in self.values:
            return self.parent.rows(cell, rows)
        return rows_lib.take(self.whole(cell), rows)

    def change(self, change: Change, compute: Callable[[], Sequence[Any]]) -> None:
        """Let servers change cells; later reads count for the variables' gradients."""
        operands = tuple(map(frames.strip_gradient, change.operands))
        change = dataclasses.replace(change, operands=operands)
        self.parent.change(change, compute)
        # The parent has computed the new values; here they get their gradient.
        for cell in change.cells:
            if cell in self._differentiated:
                self.note_assignment(cell, self.parent.whole(cell))

    def begin_change(self, cell: Cell) -> None:
        """Look at the newest value, which another thread may have stored."""
        self.parent.begin_change(cell)
        if not self.is_compiled and cell in self._differentiated:
            newest = self.parent.copy(cell, ambient.current().copy)
            self.note_assignment(cell, newest)

    def note_assignment(self, cell: Cell, value: jax.Array) -> None:
        """Note a new value; later reads of it count for the variable's gradient."""
        start = self._differentiated.get(cell)
        if start is not None:
            # The value is the assigned one and the difference is zero. But the
            # derivative of the difference is one, so that reads after an assignment
            # still reach the variable, as they do in TensorFlow.
            self.values[cell] = value + (start - jax.lax.stop_gradient(start))
        self.parent.note_assignment(cell, value)

    def settle(self, cell: Cell) -> None:
        """Let the parent settle the copies of the cell."""
        self.parent.settle(cell)

    def create(self, cell: Cell, value: jax.Array) -> None:
        """Create the cell in the parent, with a value that carries no gradient."""
        self.parent.create(cell, jax.lax.stop_gradient(value))

    def cells(self) -> Iterable[Cell]:
        """Return the cells of the parent."""
        return self.parent.cells()

    def note_topology(self, topology: Topology) -> None:
        """Tell the parent on which devices the program runs."""
        self.parent.note_topology(topology)


@overload
def value_and_grad(
    fn: Callable[_P, Any],
    variables_: variables.Variable,
    has_aux: Literal[False] = False,
) -> Callable[_P, tuple[jax.Array, jax.Array]]: ...


@overload
def value_and_grad(
    fn: Callable[_P, tuple[Any, _Aux]],
    variables_: variables.Variable,
    has_aux: Literal[True],
) -> Callable[_P, tuple[tuple[jax.Array, _Aux], jax.Array]]: ...


@overload
def value_and_grad(
    fn: Callable[_P, Any], variables_: Sequence[Any], has_aux: Literal[False] = False
) -> Callable[_P, tuple[jax.Array, list[jax.Array]]]: ...


@overload
def value_and_grad(
    fn: Callable[_P, tuple[Any, _Aux]],
    variables_: Sequence[Any],
    has_aux: Literal[True],
) -> Callable[_P, tuple[tuple[jax.Array, _Aux], list[jax.Array]]]: ...


def value_and_grad(
    fn: Callable[..., Any],
    variables_: variables.Variable | Sequence[Any],
    has_aux: bool = False,
) -> Callable[..., Any]:
    """Returns a function that computes `fn`'s value and its gradients for variables.

    Args:
        fn: a function that returns a scalar, or ``(scalar, aux)`` with `has_aux`.
            Variables that it assigns keep their new values.
        variables_: a variable or a sequence of variables. They can be those of unisono,
            or of a Keras or Flax model that was created in a scope.
        has_aux: whether `fn` returns auxiliary data.

    Returns:
        A function with `fn`'s arguments that returns ``(value, gradients)``. The
        gradients are a list in the order of the variables, or one array for a single
        variable. In replica context they are those of the replica, not reduced.

    Raises:
        TypeError: `variables_` contains something that is not a variable.
        ValueError: when called: a variable has its own value on each replica, and the
            call is not in replica context.

    >>> import unisono
    >>> v = unisono.Variable(3.0)
    >>> value, (gradient,) = unisono.value_and_grad(lambda x: v * v * x, [v])(2.0)
    >>> float(value), float(gradient)
    (18.0, 12.0)

    With auxiliary data, and a single variable:

    >>> compute = unisono.value_and_grad(lambda: (v * v, "note"), v, has_aux=True)
    >>> (value, aux), gradient = compute()
    >>> float(value), aux, float(gradient)
    (9.0, 'note', 6.0)
    """
    kinds = (variables.Variable, sharded_variable.ShardedVariable)
    single = isinstance(array_operators.find_own_variable(variables_), kinds)
    given: Any = [variables_] if single else variables_
    wanted = [array_operators.find_own_variable(v) for v in given]
    _check_kind(wanted)

    if any(_is_on_servers(v) for v in wanted):
        return _follow(fn, wanted, has_aux, single)

    @functools.wraps(fn)
    def compute(*args: object, **kwargs: object) -> Any:
        _check_context(wanted)
        parent = frames.frame()
        cells = [v.state_cell for v in wanted]

        def pure(inputs: Sequence[Any]) -> Any:
            # In a version of its own: JAX must not reuse a trace in which these
            # variables were no part of a gradient (decision 0008).
            overlay = GradientFrame(parent, dict(zip(cells, inputs, strict=True)))
            with ambient.push(state=overlay), parent.versions.separate_block():
                return fn(*args, **kwargs)

        current = [v.value() for v in wanted]
        with trace_versions.EAGER.separate_block(parent.is_compiled):
            value, gradients = jax.value_and_grad(pure, has_aux=has_aux)(current)
        return value, gradients[0] if single else list(gradients)

    return compute


@overload
def grad(
    fn: Callable[_P, Any],
    variables_: variables.Variable,
    has_aux: Literal[False] = False,
) -> Callable[_P, jax.Array]: ...


@overload
def grad(
    fn: Callable[_P, tuple[Any, _Aux]],
    variables_: variables.Variable,
    has_aux: Literal[True],
) -> Callable[_P, tuple[jax.Array, _Aux]]: ...


@overload
def grad(
    fn: Callable[_P, Any], variables_: Sequence[Any], has_aux: Literal[False] = False
) -> Callable[_P, list[jax.Array]]: ...


@overload
def grad(
    fn: Callable[_P, tuple[Any, _Aux]],
    variables_: Sequence[Any],
    has_aux: Literal[True],
) -> Callable[_P, tuple[list[jax.Array], _Aux]]: ...


def grad(
    fn: Callable[..., Any],
    variables_: variables.Variable | Sequence[Any],
    has_aux: bool = False,
) -> Callable[..., Any]:
    """Returns a function that computes `fn`'s gradients for variables.

    Args:
        fn: a function that returns a scalar, or ``(scalar, aux)`` with `has_aux`.
        variables_: a variable or a sequence of variables, as in `value_and_grad`.
        has_aux: whether `fn` returns auxiliary data.

    Returns:
        A function with `fn`'s arguments that returns the gradients, or ``(gradients,
        aux)`` with `has_aux`.

    Raises:
        TypeError: `variables_` contains something that is not a variable.
        ValueError: when called: a variable has its own value on each replica, and the
            call is not in replica context.

    >>> import unisono
    >>> v, w = unisono.Variable(3.0), unisono.Variable(2.0)
    >>> [float(g) for g in unisono.grad(lambda x: v * v * w * x, [v, w])(1.0)]
    [12.0, 9.0]
    >>> gradient, aux = unisono.grad(lambda: (v * v, "note"), v, has_aux=True)()
    >>> float(gradient), aux
    (6.0, 'note')
    """
    # With `has_aux` the value is a pair, whose second part is the auxiliary data.
    both: Callable[..., Any] = value_and_grad(fn, variables_, has_aux)  # type: ignore[call-overload]

    @functools.wraps(fn)
    def compute(*args: object, **kwargs: object) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return compute


def _is_on_servers(variable: Any) -> bool:
    """Whether a variable is in parts, or on a parameter server."""
    if isinstance(variable, sharded_variable.ShardedVariable):
        return True
    return variable.state_cell.home is not None


def _follow(
    fn: Callable[..., Any], wanted: Sequence[Any], has_aux: bool, single: bool
) -> Callable[..., Any]:
    """Return the function that `value_and_grad` returns for variables on servers.

    It follows the rows that `fn` looks up, of which only the call itself can tell; a
    tape can do that. The gradient of such a variable is `IndexedSlices`.
    """

    @functools.wraps(fn)
    def compute(*args: object, **kwargs: object) -> Any:
        with gradient_tape.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(list(wanted))
            value = fn(*args, **kwargs)
        loss = value[0] if has_aux else value
        found = tape.gradient(
            loss,
            list(wanted),
            unconnected_gradients=gradient_tape.UnconnectedGradients.ZERO,
        )
        return value, found[0] if single else found

    return compute


def _check_kind(wanted: Sequence[Any]) -> None:
    """Raise if one of `wanted` is no variable."""
    for v in wanted:
        kinds = (variables.Variable, sharded_variable.ShardedVariable)
        if not isinstance(v, kinds):
            raise TypeError(
                "Expected variables to differentiate with respect to, received "
                f"{type(v).__name__}: {v!r}. For plain arrays use jax.value_and_grad."
            )


def _check_context(wanted: Sequence[Any]) -> None:
    """Raise if a variable has a value per replica and no replica is running."""
    frame = ambient.current()
    for v in wanted:
        own = frame.mode == ambient.REPLICA and frame.strategy is v.distribute_strategy
        if v.state_cell.is_stacked and v.replica_index is None and not own:
            raise ValueError(
                f"The variable '{v.name}' holds a value per replica; its gradient is "
                "defined in replica context only. Take the gradient inside the "
                "function that you pass to strategy.run."
            )
