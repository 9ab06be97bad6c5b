"""Marks in a program that XLA partitions where weights are whole and gradients are cut.

Keras' own step is such a program: it has whole batches and whole weights, and XLA
decides what each device computes. A weight that lies on the devices in parts must be
whole where a layer reads it, or XLA would cut what is computed from it, too; and its
gradient is cut as soon as it is summed. The marks are primitives, so that they are
found in the program after differentiation (`late_gathers`). See docs/decisions/0038.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
from jax.interpreters import ad, batching, mlir

from unisono._src.execution import equations
from unisono._src.execution.late_values import SplitInput
from unisono._src.foundation import jax_internals
from unisono._src.machines import partition

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr

# The whole of a weight, and the parts of a gradient; each the transpose of the other.
gather_p = jax_internals.Primitive("gather_weight")
cut_p = jax_internals.Primitive("cut_gradient")


def gather(weight: jax.Array, source: SplitInput) -> jax.Array:
    """Return a weight whole on all devices; its gradient is cut as the weight is.

    Args:
        weight: the array, whose parts lie on the devices.
        source: the variable, with its topology.
    """
    found: jax.Array = gather_p.bind(weight, source=source)
    return found


def has_marks(jaxpr: Jaxpr) -> bool:
    """Whether a program has marks in it, at any depth."""
    return any(eqn.primitive in (gather_p, cut_p) for eqn in equations.walk(jaxpr))


def _gather(x: jax.Array, *, source: SplitInput) -> jax.Array:
    assert source.topology is not None
    target = source.topology.replicated_sharding
    whole: jax.Array = jax.lax.with_sharding_constraint(x, target)
    return whole


def _cut(x: jax.Array, *, source: SplitInput) -> jax.Array:
    assert source.topology is not None
    target = partition.sharding(source.topology, source.split)
    parts: jax.Array = jax.lax.with_sharding_constraint(x, target)
    return parts


def _batch(args: Any, axes: Any, *, source: SplitInput) -> Any:
    # Several weights in one array: XLA decides where they lie.
    return args[0], axes[0]


def _define(primitive: Any, transpose: Any, compute: Any) -> None:
    """Give a primitive its rules: it changes where an array lies, and nothing else."""

    def move_back(cotangent: Any, x: Any, *, source: SplitInput) -> list[Any]:
        return [transpose.bind(cotangent, source=source)]

    primitive.def_abstract_eval(lambda x, *, source: x)
    primitive.def_impl(compute)
    ad.deflinear2(primitive, move_back)
    batching.primitive_batchers[primitive] = _batch
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=False))


_define(gather_p, cut_p, _gather)
_define(cut_p, gather_p, _cut)
