"""Combines the values that replicas give to one assignment into one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, final

import jax
import jax.numpy as jnp

from unisono._src.foundation import errors
from unisono._src.foundation.options import ReduceOp, VariableAggregation
from unisono._src.state import frames, reading
from unisono._src.state.storage import Policy
from unisono._src.values import collectives, distributed, ports
from unisono._src.values.array_operators import StandsForArray

if TYPE_CHECKING:
    from unisono._src.state.variables import Variable


def make_payload(value: object) -> object:
    """Returns the value that a replica contributes: without gradients.

    A variable is wrapped, so that the merge can tell that all replicas gave the same.
    """
    if isinstance(value, jax.Array):
        return frames.strip_gradient(value)
    value = _as_one_array(value)
    if isinstance(value, distributed.PerReplica):
        return value.own()
    if _is_on_read(value):
        return reading.read(value)
    if isinstance(value, StandsForArray):
        return _WholeVariable(value)
    return frames.strip_gradient(value)


def _as_one_array(value: object) -> object:
    """Returns a list that has arrays in it as one array; anything else as it is.

    Such a list was made by the replica, unlike a list of constants.
    """
    if not isinstance(value, (list, tuple)):
        return value
    has_arrays = any(isinstance(x, jax.Array) for x in jax.tree.leaves(value))
    return jnp.asarray(value) if has_arrays else value


def _is_on_read(value: object) -> TypeGuard[Variable]:
    """Whether a value is a variable whose copies differ between replicas."""
    cell = getattr(value, "state_cell", None)
    return cell is not None and cell.policy is Policy.ON_READ


@final
class _WholeVariable:
    """Keeps JAX from taking a distributed variable in a payload apart."""

    def __init__(self, value: StandsForArray) -> None:
        self.value = value


def _are_same(payloads: Sequence[Any]) -> bool:
    """Whether all replicas gave one object, or equal Python numbers."""
    first = payloads[0]
    if isinstance(first, _WholeVariable):
        return all(getattr(p, "value", None) is first.value for p in payloads)
    # TensorFlow tests identity, and Python keeps one object for small numbers only; so
    # equal numbers count as one.
    if isinstance(first, (bool, int, float, complex)):
        return all(type(p) is type(first) and p == first for p in payloads)
    return all(p is first for p in payloads)


def combine_parts(variable: Variable, payloads: Sequence[Any]) -> Any:
    """Returns the aggregate of payloads of replicas that run in turn."""
    aggregation, cell = variable.state_cell.aggregation, variable.state_cell
    is_eager_and_spread = cell.is_spread and not frames.frame().is_compiled
    # TensorFlow does not combine what is one object on all replicas.
    if _are_same(payloads) and not (
        is_eager_and_spread and _differs_between_workers(variable, payloads)
    ):
        first = payloads[0]
        return _shared_value(
            variable, first.value if isinstance(first, _WholeVariable) else first
        )
    parts = [
        p.value.__jax_array__() if isinstance(p, _WholeVariable) else p
        for p in payloads
    ]
    topology = cell.topology
    if is_eager_and_spread:
        point = f"assignment of variable '{cell.name}'"
        parts = collectives.all_parts(parts, topology, point)
    # The first replica of all workers, whose parts are in replica order.
    if aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
        return parts[0]
    op = ReduceOp.from_variable_aggregation(aggregation)
    return collectives.reduce_parts(op, parts, topology.home)


def _differs_between_workers(variable: Variable, payloads: Sequence[Any]) -> bool:
    """Whether other workers may have another value than all replicas here."""
    if isinstance(payloads[0], _WholeVariable):
        return False
    # With SUM and several replicas here the general rules raise: nobody has to ask.
    is_sum = variable.state_cell.aggregation is VariableAggregation.SUM
    return len(payloads) == 1 or not is_sum


def combine_spmd(variable: Variable, value: object, port: ports.SpmdPort) -> Any:
    """Returns the aggregate of the replicas' values in an SPMD program."""
    value = _as_one_array(value)
    if isinstance(value, distributed.PerReplica):
        value = value.own()
    elif _is_on_read(value):
        value = reading.read(value)
    elif isinstance(value, StandsForArray) or _is_one_for_all(variable, value, port):
        return _shared_value(variable, value)
    value = frames.strip_gradient(value)
    if variable.state_cell.aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
        return collectives.pick_local(value, 0)
    op = ReduceOp.from_variable_aggregation(variable.state_cell.aggregation)
    return collectives.reduce_local(op, value, port.replicas)


def _is_one_for_all(variable: Variable, value: object, port: ports.SpmdPort) -> bool:
    """Whether all replicas of all workers have one object as `value`."""
    # One object on this worker may be another one on the next, unless a merge made it.
    # With SUM and several replicas here it is an error in any case.
    if not port.is_shared(value) or port.here == port.replicas:
        return port.is_shared(value)
    is_sum = variable.state_cell.aggregation is VariableAggregation.SUM
    return port.is_merged(value) or (is_sum and port.here > 1)


def _shared_value(variable: Variable, value: object) -> object:
    """Returns a value that is one object for all replicas, which needs no combining.

    Raises:
        AssertionError, ValueError: the aggregation is SUM, which TensorFlow refuses.
    """
    if variable.state_cell.aggregation is VariableAggregation.SUM:
        if isinstance(value, distributed.DistributedValues):
            raise AssertionError(
                f"Assigning a mirrored variable to '{variable.name}' with aggregation "
                "SUM would add up copies of one value; assign its read_value()."
            )
        raise errors.not_distributed_error(value, ReduceOp.SUM)
    return value
