"""Ports, by which a replica meets the others; one for each way to run replicas."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, final

import jax
import numpy as np

from unisono._src.foundation import errors, jax_internals, nest
from unisono._src.machines.topology import Topology
from unisono._src.values import jax_tapes, jax_traces
from unisono._src.values.array_operators import StandsForArray

_GRADIENTS = jax_internals.JVPTrace, jax_internals.LinearizeTrace
_T = TypeVar("_T")
# From the payloads of all replicas to the result of each.
_Combine: TypeAlias = Callable[[list[Any]], Sequence[Any]]
# The structure of a payload; for each leaf whether it is an array, and if not, itself.
_Rest: TypeAlias = tuple[Any, list[tuple[bool, object]]]


class NeedsLockstep(errors.Signal):
    """Says that one program cannot stand for all replicas: they must take turns."""


class Port(abc.ABC):
    """Lets one replica exchange values with the others; abstract.

    Attributes:
        replicas: how many replicas there are, over all workers.
        here: how many of them are in this process.
        is_alone: whether there is no other replica.
        is_spmd: whether one program, traced once, stands for all replicas.
        has_merged: whether a merge_call has called a function of the user.
        has_tapes: whether the replica has opened a gradient tape.
    """

    replicas: int
    here: int
    is_alone: bool
    is_spmd: bool
    has_merged = False
    has_tapes = False


@final
class SingleReplicaPort(Port):
    """The port of a single replica, which has nobody to exchange values with."""

    is_alone: Literal[True] = True
    is_spmd: Literal[False] = False
    replicas = here = 1


@final
class SpmdPort(Port):
    """The port of a replica that is traced once for all; its collectives are XLA's.

    Args:
        topology: the replicas.
        outer_traces: the traces around the replica function.
    """

    is_alone: Literal[False] = False
    is_spmd: Literal[True] = True

    def __init__(
        self, topology: Topology, outer_traces: Sequence[jax.core.Trace]
    ) -> None:
        self.replicas = topology.replicas
        self.here = topology.copies
        self._outer = tuple(outer_traces)
        # By identity; the object is kept so that its id is not given to another one.
        self._merged: dict[int, object] = {}
        self._own: dict[int, object] = {}

    def own(self, x: object) -> None:
        """Notes that the replica function made `x`, an array whose value is known."""
        self._own[id(x)] = x

    def share(self, x: object) -> None:
        """Notes that a merge_call returned `x` to all replicas."""
        self._merged[id(x)] = x

    def is_merged(self, x: object) -> bool:
        """Whether a merge_call returned `x` to all replicas."""
        return id(x) in self._merged

    def is_shared(self, x: object) -> bool:
        """Whether `x` is one object that all replicas have, not one per replica."""
        if id(x) in self._merged:
            return True
        if isinstance(x, (np.ndarray, np.generic)):
            # As a rule the replica function has made it, so each replica has another.
            return False
        if not isinstance(x, jax.core.Tracer):
            # An array whose value is known comes from outside the function, unless an
            # operation in it has said that it made it.
            return id(x) not in self._own
        return any(jax_traces.trace_of(x) is t for t in self._outer)


@final
class LockstepPort(Port):
    """The port of a replica that runs in turn with the others.

    `meet` pauses the replica until all have called it; then each goes on with its own
    result. The values of two replicas can be combined only at the trace level at which
    the replicas were started. A merge point inside a gradient is therefore carried out
    to that level: by a `custom_vjp`, whose rules JAX runs around the gradient (see
    docs/decisions/0004).

    Args:
        index: the replica.
        topology: all replicas.
        turns: the replicas that take turns here, in that order.
        suspend: pauses the replica with a request, and returns the answer.
        made: the variables that the replicas have made so far, each after the name
            that it was given; shared by all ports.

    Attributes:
        level: the trace of JAX in which the replicas were started.
        creators: how many creators of variables there were then; those behind them
            were entered by the replica function.
    """

    is_alone: Literal[False] = False
    is_spmd: Literal[False] = False

    def __init__(
        self,
        index: int,
        topology: Topology,
        turns: range,
        suspend: Callable[[Any], Any],
        made: list[Any],
    ) -> None:
        self.index = index
        self.replicas = topology.replicas
        self.here = topology.copies
        self.turns = turns
        # The replica has asked for the first `taken` of the variables in `made`.
        self.made, self.taken = made, 0
        self.creators = 0
        self._suspend = suspend
        self.level = jax_internals.trace_context.trace

    def meet(
        self,
        combine: _Combine,
        payload: object,
        transpose: _Combine | None = None,
    ) -> Any:
        """Waits until all replicas are here, and returns this one's result.

        Args:
            combine: a function from the list of all payloads to the list of results,
                one per replica; that of replica 0 is called, once.
            payload: the value that this replica contributes.
            transpose: the transpose of a linear `combine`, through which gradients
                flow back; None stops gradients.

        Raises:
            RuntimeError: the running code is inside a body that JAX traces by itself.
        """
        if self.has_tapes:
            # Other replicas know nothing of this one's tapes, so they get the arrays.
            payload = nest.map_structure(jax_tapes.lower, payload)
        # No gradient around this point: wait for the others here.
        if jax_internals.trace_context.trace is self.level:
            return self._suspend((combine, payload))
        if jax_traces.base_trace() is not jax_traces.base_trace(self.level):
            raise RuntimeError(
                "`merge_call` called while defining a new graph or tf.function: a "
                "merge_call, all_reduce, all_gather or aggregating assign was reached "
                "inside lax.scan, lax.cond, jax.jit or jax.vmap, where replicas that "
                "run in turn cannot wait for each other. Move it out of that body."
            )
        # Inside a gradient. Without a gradient to pass on, go to the level of the
        # start, and wait there; else let JAX carry the meeting out of the gradient.
        arrays, rest = _split_arrays(payload)
        is_followed = any(jax_tapes.is_followed(x, self.level) for x in arrays)
        if transpose is not None and is_followed:
            return self._make_differentiable(combine, rest, transpose)(arrays)
        lowered = [self._strip_gradients(x) for x in arrays]
        with jax_internals.set_current_trace(self.level):
            return self._suspend((combine, _join_arrays(lowered, rest)))

    def _strip_gradients(self, x: _T) -> _T:
        """Returns the value of `x` outside the gradients that the replica is in."""
        while isinstance(x, jax.core.Tracer):
            trace = jax_traces.trace_of(x)
            if trace is self.level:
                break
            # Only gradients have a value beneath them; any other trace is the
            # program's.
            if not isinstance(trace, _GRADIENTS):
                break
            x = x.primal
        return x

    def _make_differentiable(
        self, combine: _Combine, rest: _Rest, transpose: _Combine
    ) -> Callable[[list[jax.Array]], Any]:
        """Returns a function of arrays that meets, and meets again for the gradient."""

        # JAX calls it, and the two rules, at the level around the innermost gradient:
        # each of several nested gradients takes `meet` one level further out.
        @jax.custom_vjp
        def outside(arrays: list[jax.Array]) -> Any:
            return self.meet(combine, _join_arrays(arrays, rest), transpose)

        def forward(arrays: list[jax.Array]) -> tuple[Any, None]:
            met = self.meet(combine, _join_arrays(arrays, rest), transpose)
            return met, None

        def backward(_: None, cotangent: object) -> tuple[list[jax.Array]]:
            own = self.meet(transpose, cotangent, combine)
            return (_split_arrays(own)[0],)

        outside.defvjp(forward, backward)
        return outside


# A type checker tells them apart by `is_alone` and `is_spmd`.
ReplicaPort: TypeAlias = SingleReplicaPort | SpmdPort | LockstepPort


def _split_arrays(payload: object) -> tuple[list[jax.Array], _Rest]:
    """Returns the arrays of a payload, and the rest for `_join_arrays`."""
    leaves, treedef = jax.tree.flatten(payload, is_leaf=_stands_for_array)
    is_array = [isinstance(x, jax.Array) for x in leaves]
    arrays = [x for x, a in zip(leaves, is_array, strict=True) if a]
    others = [None if a else x for x, a in zip(leaves, is_array, strict=True)]
    return arrays, (treedef, list(zip(is_array, others, strict=True)))


def _stands_for_array(x: object) -> bool:
    # Variables and distributed values must not be taken apart.
    return isinstance(x, StandsForArray)


def _join_arrays(arrays: list[jax.Array], rest: _Rest) -> object:
    treedef, marks = rest
    given = iter(arrays)
    return treedef.unflatten([next(given) if a else x for a, x in marks])
