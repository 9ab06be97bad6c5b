"""Keeping the value of another library's variable in one of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.foundation import ambient
from unisono._src.foundation.options import VariableAggregation
from unisono._src.state import assignment, variables
from unisono._src.state.frames import Policy
from unisono._src.values import jax_traces


def make(value: Any, **options: Any) -> variables.Variable:
    """A variable of the current strategy with a first value.

    It is made now, also while a program is being traced: a layer builds itself once,
    whatever becomes of the trace in which it does so, and once for all replicas, also
    when they take turns.
    """
    placement = ambient.current().placement
    is_central = placement is not None and placement.kind is Policy.CENTRAL
    if is_central and not options["trainable"]:
        # There is one copy, so one of the replicas must be the one that writes it.
        first = VariableAggregation.ONLY_FIRST_REPLICA
        given = options.get("aggregation", VariableAggregation.NONE)
        options["aggregation"] = first if given is VariableAggregation.NONE else given
    with _at_once(value):
        return variables.Variable(value, **options)


@contextlib.contextmanager
def _at_once(value: Any) -> Iterator[None]:
    if isinstance(value, jax.core.Tracer):
        yield
        return
    with ambient.pushed(state=None, port=None), jax_traces.computing():
        yield


def aggregation_of_state(dtype: Any) -> VariableAggregation:
    """How replicas agree on state that no gradient changes, unless it says so itself.

    Moving averages and the like: replicas compute them from their own part of the
    batch. TensorFlow lets the copies drift apart; here they are averaged. Counters and
    keys must come out the same on all replicas.
    """
    is_float = jnp.issubdtype(dtype, jnp.floating)
    return VariableAggregation.MEAN if is_float else VariableAggregation.NONE


def assign(kept: variables.Variable, op: str, value: Any) -> None:
    """Assign by the rules of the running context; more is allowed than by TensorFlow.

    Args:
        kept: the variable.
        op: one of the operations of `assignment`.
        value: the operand.
    """
    frame, cell = ambient.current(), kept._cell
    is_own = frame.strategy is kept.distribute_strategy
    in_replica = is_own and frame.mode == ambient.REPLICA and frame.port is not None
    if in_replica and cell.policy is Policy.MIRRORED:
        if kept.aggregation is VariableAggregation.NONE:
            # Seeds and the like: every replica writes the same. That is proved from
            # the program, or checked when the copies are read together.
            assignment.write_own(kept, op, value)
            return
    elif cell.policy is Policy.ON_READ and not in_replica and op != assignment.REPLACE:
        old = assignment.read(kept)
        value = old + value if op == assignment.ADD else old - value
        op = assignment.REPLACE
    assignment.assign(kept, op, value, False)
