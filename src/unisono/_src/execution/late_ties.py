"""Makes XLA compute an array not before another one, which it does not need.

Else it would merge the gathers of a weight, and do all of them first (decision 0036).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from unisono._src.machines import partition

if TYPE_CHECKING:
    from unisono._src.execution.late_values import Late

# Returns its first argument, which is not there before the second.
Hold: TypeAlias = Callable[[jax.Array, jax.Array], jax.Array]


def find(platform: str) -> Hold:
    """Return how arrays are tied on a platform, such as ``"cpu"``.

    XLA drops barriers on CPU, and on TPUs it moves gathers across them.
    """
    return _hold_by_select if platform in ("cpu", "tpu") else _hold_by_barrier


def tie(late: Late, other: jax.Array, axis: int, hold: Hold) -> Late:
    """Return an array that is not gathered before another one is there.

    Args:
        late: the array.
        other: the other one.
        axis: the axis along which the other one lies on devices, if XLA decides that.
        hold: how arrays are tied.
    """
    topology = late.source.topology
    if topology is None:
        part = hold(late.part, other)
    else:
        # In a program that XLA partitions, every device must look at a number that it
        # has, so that nothing is sent.
        mesh = partition.find_mesh(topology, late.split)
        row, spec = take_row(other, axis, mesh)
        spec_of_part = late.split.spec
        mapped = jax.shard_map(
            hold,
            mesh=mesh,
            in_specs=(spec_of_part, spec),
            out_specs=spec_of_part,
            check_vma=False,
        )
        part = mapped(late.part, row)
    return dataclasses.replace(late, part=part)


def can_wait(x: object) -> bool:
    """Whether an operand is an array of numbers that another one can be tied to."""
    if not isinstance(x, jax.Array) or not x.size:
        return False
    return not jnp.issubdtype(x.dtype, jax.dtypes.extended)


def take_row(
    x: jax.Array, axis: int, mesh: jax.sharding.Mesh
) -> tuple[jax.Array, PartitionSpec]:
    """Return the first elements of an array along an axis, and how they lie on devices.

    Args:
        x: the array.
        axis: the axis that lies on the devices.
        mesh: the devices.
    """
    if x.ndim == 0:
        return x.reshape(1), PartitionSpec()
    limits = [n if i == axis else 1 for i, n in enumerate(x.shape)]
    row = jax.lax.slice(x, [0] * x.ndim, limits).reshape(-1)
    is_cut = row.size % mesh.size == 0
    return row, PartitionSpec(tuple(mesh.axis_names) if is_cut else None)


def _hold_by_barrier(x: jax.Array, other: jax.Array) -> jax.Array:
    found: jax.Array = jax.lax.optimization_barrier((x, other))[0]
    return found


def _hold_by_select(x: jax.Array, other: jax.Array) -> jax.Array:
    """Return an array by a condition on another one that is never true.

    XLA cannot see that: no absolute value is above zero and at most zero.
    """
    first = jax.lax.slice_in_dim(jnp.real(other).reshape(-1), 0, 1)[0]
    never = jnp.minimum(jnp.abs(first.astype(jnp.int32)), 0) > 0
    changed = ~x if x.dtype == bool else x + jnp.ones((), x.dtype)
    return jnp.where(never, changed, x)
