"""What the variables of Keras and Flax have in common.

Those made in a scope are kept in variables of the strategy. Those made outside every
scope are followed by gradient tapes.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from unisono._src.foundation import ambient, library_hooks
from unisono._src.foundation.options import VariableAggregation
from unisono._src.state import assignment, frames, reading, remote_state, variables
from unisono._src.state.storage import Policy
from unisono._src.values import collectives, jax_tapes, jax_traces

T = TypeVar("T")
_Held = TypeVar("_Held", bound=library_hooks.LibraryVariable)
# The first value of a variable, or a function that returns it.
Initial = jax.Array | Callable[[], jax.Array]


# The object for each variable, by the variable's id, so that a variable that two paths
# lead to is saved once. An entry holds its variable, so its id cannot be given away.
_held: weakref.WeakValueDictionary[int, library_hooks.LibraryVariable] = (
    weakref.WeakValueDictionary()
)


def hold(kind: type[_Held], variable: object) -> _Held:
    """Return the object that stands for a variable; the same one while it is used.

    Args:
        kind: the class of such objects, which keep the variable alive.
        variable: the variable of a library.
    """
    found = _held.get(id(variable))
    if not isinstance(found, kind):
        found = _held[id(variable)] = kind(variable)
    return found


def make(value: Initial, **options: Any) -> variables.Variable:
    """Return a new variable of the current strategy.

    The variable is created at once, even while a program is being traced: a layer
    builds itself only once, although the trace may be repeated or given up, and
    although replicas that take turns all run the same code.

    Args:
        value: the first value, or a function that returns it.
        **options: the other arguments of `unisono.Variable`; `trainable` is required.
    """
    placement = ambient.current().placement
    is_central = placement is not None and placement.kind is Policy.CENTRAL
    if is_central and not options["trainable"]:
        # A central variable has one copy. Replicas that assign to it need a rule, and
        # Keras and Flax give none for state such as counters.
        first = VariableAggregation.ONLY_FIRST_REPLICA
        given = options.get("aggregation", VariableAggregation.NONE)
        options["aggregation"] = first if given is VariableAggregation.NONE else given
    value = frames.strip_gradient(value)
    # A variable of another library is one object with one value: it stays whole.
    home = remote_state.find_home(ambient.current())
    with _leave_trace(value), ambient.push(colocate=home):
        return variables.Variable(value, **options)


@contextlib.contextmanager
def _leave_trace(value: object) -> Iterator[None]:
    """Run a block outside every trace and program, unless `value` belongs to one."""
    if isinstance(value, jax.core.Tracer):
        yield
        return
    with ambient.push(state=None, port=None), jax_traces.compute_at_once():
        yield


def aggregation_of_state(dtype: DTypeLike) -> VariableAggregation:
    """Return the aggregation of state that no gradient changes, such as averages.

    Replicas compute a moving average from their own part of the batch. TensorFlow lets
    the copies drift apart; here they are averaged. Integers and keys, such as counters
    and seeds, are not aggregated: all replicas must write the same value.
    """
    is_float = jnp.issubdtype(dtype, jnp.floating)
    return VariableAggregation.MEAN if is_float else VariableAggregation.NONE


def assign(kept: variables.Variable, op: str, value: jax.Array) -> None:
    """Assign to a variable by the rules of the running context.

    Two cases are allowed here that `unisono.Variable` refuses, as TensorFlow does,
    because code of Keras and Flax relies on them: replicas may write the same value to
    a mirrored variable without aggregation, and one may add to an ON_READ variable in
    cross-replica context.

    Args:
        kept: the variable.
        op: one of the operations of `assignment`.
        value: the operand.
    """
    frame, cell = ambient.current(), kept.state_cell
    is_own = frame.strategy is kept.distribute_strategy
    in_replica = is_own and frame.mode == ambient.REPLICA and frame.port is not None
    if in_replica and cell.policy is Policy.MIRRORED:
        if kept.aggregation is VariableAggregation.NONE:
            # A seed, for example. That all replicas write the same is proved from the
            # program, or checked when the copies are read: see docs/decisions/0006.
            assignment.write_own(kept, op, value)
            return
    elif cell.policy is Policy.ON_READ and not in_replica and op != assignment.REPLACE:
        if not frames.frame().is_compiled:
            _add_to_copies(kept, value if op == assignment.ADD else -value)
            return
        old = reading.read(kept)
        value = old + value if op == assignment.ADD else old - value
        op = assignment.REPLACE
    assignment.assign(kept, op, value, False)


def _add_to_copies(kept: variables.Variable, value: jax.Array) -> None:
    """Add to the aggregate of an ON_READ variable, outside replicas and programs."""
    # Copy by copy: their aggregate, which is read from all workers, is not needed, and
    # what other threads add meanwhile stays.
    cell = kept.state_cell
    every = cell.topology.local if cell.is_stacked else [None]
    delta = collectives.release(collectives.own_copy(assignment.convert(cell, value)))
    for index in every:
        if cell.aggregation is not VariableAggregation.SUM or not index:
            assignment.change_copy(cell, index, lambda old: old + delta)


def follow(
    tape: jax_tapes.Recording, variable: object, raw: T, is_trainable: bool
) -> T:
    """Return the array of a variable so that open tapes follow it.

    Args:
        tape: the innermost tape.
        variable: the variable.
        raw: its array.
        is_trainable: whether it is followed without `watch`.
    """
    # A tracer is a value that the library passes on, which tapes follow already.
    if not isinstance(raw, jax.Array) or isinstance(raw, jax.core.Tracer):
        return raw
    with ambient.push(tape=None):  # What is asked for may read the variable.
        key = library_hooks.find_state(variable)
    tapes = [tape]
    while tapes[-1].outer is not None:
        tapes.append(tapes[-1].outer)
    # From the outermost on: an inner tape follows what the outer one has made of it.
    followed: Any = raw
    for each in reversed(tapes):
        followed = each.follow(key, followed, variable, is_trainable)
    return followed  # type: ignore[no-any-return]
