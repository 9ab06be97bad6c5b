"""Making variables: checks, placement, and who else has a say in it."""

from __future__ import annotations

import contextlib
import sys
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import ambient
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.machines import partition
from unisono._src.state import frames
from unisono._src.state.frames import Policy
from unisono._src.values import collectives, distributed
from unisono._src.values.array_operators import operand

# Whose code is not the user's, when it is asked where a variable was made.
_PACKAGES = {__name__.partition(".")[0], "keras", "flax"}


def policy(
    placement: frames.Placement | None, synchronization: VariableSynchronization
) -> Policy:
    """How a placement keeps a variable of a synchronization."""
    if placement is None or placement.kind is Policy.PLAIN:
        return Policy.PLAIN
    if placement.kind is Policy.CENTRAL:
        return Policy.CENTRAL if placement.topology.replicas > 1 else Policy.PLAIN
    if synchronization is VariableSynchronization.ON_READ:
        return Policy.ON_READ
    return Policy.MIRRORED


def initial(
    initial_value: Any,
    dtype: Any,
    shape: Any,
    name: str | None,
    placement: frames.Placement | None = None,
) -> Any:
    """The initial value as an array of the wanted type and shape.

    Args:
        initial_value: array-like, or a function that gives one.
        dtype: the wanted type, if any.
        shape: the wanted shape, if any.
        name: of the variable.
        placement: of mirrored variables; one may cut large ones over the devices, and
            then no device computes or holds the whole.
    """
    if initial_value is None:
        raise ValueError(
            f"The `initial_value` of variable {name} is None; give an array, a number "
            "or a function without arguments that returns one."
        )
    is_cut = placement is not None and placement.split_above is not None
    if is_cut and not frames.frame().is_compiled:
        value = in_parts(initial_value, dtype, placement)
    else:
        value = initial_value() if callable(initial_value) else initial_value
        value = _as_value(value, dtype)
    if shape is not None:
        wanted = tuple(shape)
        matches = len(wanted) == value.ndim and all(
            w is None or w == h for w, h in zip(wanted, value.shape, strict=True)
        )
        if not matches:
            raise ValueError(
                f"The initial value's shape {value.shape} is not compatible with the "
                f"explicitly supplied `shape` argument {wanted} of variable {name}."
            )
    return value


def _as_value(value: Any, dtype: Any) -> Any:
    value = jnp.asarray(distributed.copy_if_numpy(operand(value)), dtype)
    # A weak type would make the variable's dtype follow what is assigned to it.
    return jax.lax.convert_element_type(value, value.dtype)


def in_parts(given: Any, dtype: Any, placement: Any) -> Any:
    """A first value; if it is large, part by part where the placement wants it.

    A function is traced, and each device computes its part of what it gives. One that
    cannot be traced is called, and computes on the host.

    Args:
        given: an array, or a function that gives one.
        dtype: the wanted type, if any.
        placement: says what is large, and which devices there are.
    """
    concrete: list[Any] = []

    def traced() -> Any:
        found = operand(given())
        if isinstance(found, jax.core.Tracer):
            return _as_value(found, dtype)
        concrete.append(found)
        return ()

    if callable(given):
        try:
            closed = jax.make_jaxpr(traced)()
        except Exception:
            with _on_host():
                concrete = [collectives.release(_as_value(given(), dtype))]
        if not concrete:
            return _computed(closed, placement)
        given = concrete[0]
    if not isinstance(given, np.ndarray):
        return _as_value(given, dtype)
    target = _target(given.shape, placement)
    if target is None:
        return _as_value(given, dtype)
    wanted = jax.dtypes.canonicalize_dtype(given.dtype if dtype is None else dtype)
    return partition.put(given.astype(wanted), target)


def _on_host() -> Any:
    """A block that computes on the host, if JAX has it among its devices."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        return contextlib.nullcontext()


def _target(shape: Any, placement: Any) -> Any:
    split = partition.choose(placement.topology, placement.split_above, shape)
    return None if split is None else partition.sharding(placement.topology, split)


def _computed(closed: Any, placement: Any) -> Any:
    def compute() -> Any:
        return jax.core.eval_jaxpr(closed.jaxpr, closed.consts)[0]

    (aval,) = closed.out_avals
    target = _target(aval.shape, placement)
    if target is None or jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return compute()
    return jax.jit(compute, out_shardings=target)()


def check_distributed(synchronization: VariableSynchronization, name: Any) -> None:
    """Raise if a strategy cannot keep a variable of a synchronization."""
    if synchronization is VariableSynchronization.NONE:
        raise ValueError(
            "'NONE' variable synchronization mode is not supported with "
            "tf.distribute strategy. Please change the 'synchronization' for "
            f"variable: {name}"
        )


def check_mean(aggregation: VariableAggregation, dtype: Any) -> None:
    """Raise if values of a type have no mean."""
    if aggregation is VariableAggregation.MEAN and not jnp.issubdtype(
        dtype, jnp.inexact
    ):
        raise ValueError(
            "creating distributed tf.Variable with aggregation=MEAN and a "
            f"non-floating dtype is not supported (received {dtype}), please use a "
            "different aggregation or dtype"
        )


def origin() -> str:
    """File and line of the user's code that makes a variable."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _PACKAGES:
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def with_creators(create: Callable[..., Any]) -> Callable[..., Any]:
    """Return `create` behind the functions of `variable_creator_scope`, if any.

    Args:
        create: makes the variable from keyword arguments, which creators may change.
    """
    frame = ambient.current()
    if frame.placement is None:
        return _chain(frame.creators, create)
    outer = frame.creators[: frame.outer_creators]
    inner = frame.creators[frame.outer_creators :]
    if outer:
        create = _by_component(outer, create, frame.placement.topology.copies)
    return _chain(inner, create)


def _by_component(
    creators: tuple[Any, ...], create: Callable[..., Any], count: int
) -> Callable[..., Any]:
    """Show each component of the variable to creators given outside the scope."""

    def build(**kwargs: Any) -> Any:
        made: list[Any] = []

        def component(index: int) -> Callable[..., Any]:
            def give(**kwargs: Any) -> Any:
                if not made:
                    made.append(create(**kwargs))
                parts = getattr(made[0], "values", None)
                return made[0] if parts is None else parts[index]

            return give

        for i in range(count):
            _chain(creators, component(i))(**kwargs)
        return made[0]

    return build


def _chain(creators: tuple[Any, ...], last: Callable[..., Any]) -> Callable[..., Any]:
    for creator in creators:
        last = _bind_creator(creator, last)
    return last


def _bind_creator(creator: Any, following: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **kwargs: creator(following, **kwargs)


def take_in_turn(port: Any, make: Callable[[], Any], name: str | None) -> Any:
    """The next variable of replicas that run in turn: the k-th is one for all.

    Replica 0 makes it, the others find it.

    Args:
        port: of the replica that asks.
        make: makes the variable.
        name: of the variable, for messages.
    """
    if port.index == port.turns[0]:
        port.made.append(make())
    elif port.taken >= len(port.made):
        raise RuntimeError(
            f"Tried to create variable {name} with mismatching name on a replica: "
            "replica 0 did not create it. Every replica must create the same "
            "variables in the same order."
        )
    port.taken += 1
    return port.made[port.taken - 1]


def variable_creator_scope(creator: Callable[..., Any]) -> Any:
    """Call ``creator(next_creator, **kwargs)`` for every variable made in the block.

    Creators given outside a strategy's scope see the component variables, creators
    given inside it see the distributed variable.
    """
    creators = (*ambient.current().creators, creator)
    return ambient.pushed(creators=creators)


def glorot_uniform(name: str, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Uniform in ±sqrt(6 / (fan in + fan out)), the same for the same name."""
    receptive = int(np.prod(shape[:-2]))
    fan_in = receptive * (shape[-2] if len(shape) > 1 else (shape or (1,))[-1])
    fan_out = receptive * (shape or (1,))[-1]
    limit = (6.0 / max(fan_in + fan_out, 1)) ** 0.5
    key = jax.random.key(zlib.crc32(name.encode()))
    return jax.random.uniform(key, shape, dtype, -limit, limit)
