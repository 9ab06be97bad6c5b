"""Keeps programs away from what XLA computes wrongly, or crashes on.

- *Splits that give wrong numbers.* When an image is split along its space *and* its
  channels, XLA sums the gradient of a convolution's kernel over all logical devices,
  although some of them hold the same part of the sum. The gradient is then too large by
  the number of parts of the channels. So a program that asks for such a split is
  refused. Variables that are stored split are gathered before a program takes such a
  gradient, because from such variables the compiler would split images by itself
  (decision 0017).
- *Indexing arrays that are split along several axes.* Where replicas have logical
  devices along more than one axis of the mesh, a gather or scatter whose arrays are
  split along an indexed axis and along another one fails a check inside XLA on CPU
  (jaxlib 0.10 to 0.12, each with its own set of cases). The rewritten program keeps the
  indices, and all axes but the indexed ones, whole around every gather and scatter.
- *Empty arrays that enter a replica's program.* XLA of jaxlib 0.11 ends in a
  segmentation fault on CPU. An empty array holds no numbers, so the replica can make it
  itself.

A rewritten program computes the same numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from unisono._src.execution import equations
from unisono._src.machines.partition import Split

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn

    # Returns the equations that replace one.
    _Rewrite: TypeAlias = Callable[[JaxprEqn], list[JaxprEqn]]

# Splits that give wrong numbers.


def check(jaxpr: Jaxpr) -> None:
    """Raise if a program asks for a split that XLA computes wrongly.

    Args:
        jaxpr: the program.

    Raises:
        ValueError: the gradient of a convolution's kernel is taken, and its input is
            split along both space and channels.
    """
    found = list(equations.walk(jaxpr))
    # Which array a split is for is not followed: any array of an image's rank counts as
    # an image. So a program that would be right may be refused.
    splits = {
        _split_axes(e) for e in found if e.primitive.name == "sharding_constraint"
    }
    for _, channels, *space in _layouts_with_kernel_gradients(found):
        for rank, axes in splits:
            # Besides its axes of space, an image has one of batch and one of channels.
            if rank == len(space) + 2 and channels in axes and axes & {*space}:
                raise _wrong_gradient_error(axes, space, channels)


def must_gather(jaxpr: Jaxpr, split: Split) -> bool:
    """Whether a program must gather a split variable before it uses it.

    Args:
        jaxpr: the program.
        split: how the variable is stored. Of a variable that is split over replicas,
            each replica gathers the parts itself, so only equations outside the
            replicas count.
    """
    is_mapped = split.is_over_replicas
    return bool(
        _layouts_with_kernel_gradients(
            list(equations.walk(jaxpr, into_replicas=not is_mapped))
        )
    )


def _layouts_with_kernel_gradients(found: Sequence[JaxprEqn]) -> list[tuple[int, ...]]:
    """Return the layouts of convolutions whose kernels the program differentiates."""
    every = [_layout(e) for e in found if e.primitive.name == _CONVOLUTION]
    layouts = list(dict.fromkeys(every))
    # JAX computes the gradient of a kernel as a later convolution, in which the batch
    # and the channels have changed places.
    return [
        (batch, channels, *space)
        for i, (batch, channels, *space) in enumerate(layouts)
        if (channels, batch, *space) in layouts[i:]
    ]


_CONVOLUTION = "conv_general_dilated"


def _wrong_gradient_error(
    axes: frozenset[int], space: Sequence[int], channels: int
) -> ValueError:
    """Return the error for a split along both space and channels."""
    return ValueError(
        f"An array is split along the axes {sorted(axes)} and convolved. Its axes of "
        f"space are {sorted(space)}, and its axis of channels is {channels}. XLA "
        "computes the gradient of the kernel wrongly if both are split. Split along "
        "space or along the channels, each with or without the batch."
    )


def _split_axes(equation: JaxprEqn) -> tuple[int, frozenset[int]]:
    """Return the rank of the array that is laid out, and the axes it is split along."""
    spec = equation.params["sharding"].spec
    axes = frozenset(i for i, names in enumerate(spec) if names)
    return equations.aval_of(equation.invars[0]).ndim, axes


def _layout(equation: JaxprEqn) -> tuple[int, ...]:
    """Return the axes of batch, channels and space of a convolution's input."""
    return tuple(equation.params["dimension_numbers"].lhs_spec)


# Programs on which XLA crashes.


def rewrite(jaxpr: Jaxpr) -> Jaxpr:
    """Return a program that computes the same and that XLA can compile.

    Args:
        jaxpr: the program of a whole function. It contains its gradients already; none
            is taken of it afterwards.
    """
    return _map_equations(jaxpr, _rewrite_replicas)


def _rewrite_replicas(equation: JaxprEqn) -> list[JaxprEqn]:
    """Return the equations that replace one equation outside the replicas."""
    if equation.primitive.name != "shard_map":
        return [_map_inner(equation, _rewrite_replicas)]
    body = _make_empty_inputs(equation.params["jaxpr"])
    if _has_several_logical_axes(equation):
        body = _map_equations(body, lambda e: _rewrite_indexing(e, equation))
    if body is equation.params["jaxpr"]:
        return [equation]
    return [equation.replace(params={**equation.params, "jaxpr": body})]


def _has_several_logical_axes(mapped: JaxprEqn) -> bool:
    """Whether each of several replicas is split along more than one mesh axis."""
    # A `shard_map` is manual over the replica axis; all other axes of the mesh are
    # logical devices of a replica, which the compiler uses as it likes (decision 0016).
    sizes = dict(mapped.params["mesh"].shape)
    manual = mapped.params["newly_manual_axes"]
    others = [name for name, size in sizes.items() if name not in manual and size > 1]
    return len(others) > 1 and any(sizes[name] > 1 for name in manual)


# Empty arrays.


def _make_empty_inputs(jaxpr: Jaxpr) -> Jaxpr:
    """Return a replica's program that makes its empty inputs itself."""
    avals = {v: equations.aval_of(v) for v in jaxpr.invars}
    made = {v: _empty_array_equation(a) for v, a in avals.items() if _is_empty(a)}
    if not made:
        return jaxpr

    def swap(var: equations.Atom) -> equations.Atom:
        # A literal cannot be hashed, and it is never an input.
        if equations.is_literal(var) or var not in made:
            return var
        return made[var].outvars[0]

    old = [e.replace(invars=[swap(v) for v in e.invars]) for e in jaxpr.eqns]
    outputs = [swap(v) for v in jaxpr.outvars]
    changed: Jaxpr = jaxpr.replace(eqns=[*made.values(), *old], outvars=outputs)
    return changed


def _is_empty(aval: jax.core.ShapedArray) -> bool:
    """Whether an array has no elements; keys of random numbers are left alone."""
    return 0 in aval.shape and not jnp.issubdtype(aval.dtype, jax.dtypes.extended)


def _empty_array_equation(aval: jax.core.ShapedArray) -> JaxprEqn:
    """Return an equation that makes an empty array of the given shape."""
    zero = np.zeros((), aval.dtype)
    traced = jax.make_jaxpr(lambda: jax.lax.broadcast_in_dim(zero, aval.shape, ()))()
    made: JaxprEqn = traced.eqns[0]
    return made


# Indexing.


def _rewrite_indexing(equation: JaxprEqn, mapped: JaxprEqn) -> list[JaxprEqn]:
    """Return a gather or scatter in which only the indexed axes may be split."""
    axes = _indexed_axes(equation)
    if axes is None:
        return [_map_inner(equation, lambda e: _rewrite_indexing(e, mapped))]
    array, *others = equation.invars
    (result,) = equation.outvars
    whole, split = (
        PartitionSpec(),
        _layout_with_free_axes(axes, equations.aval_of(array).ndim),
    )
    layouts = [split, *(whole for _ in others)]
    before = [
        _layout_equation(mapped, equations.aval_of(var), spec).replace(invars=[var])
        for var, spec in zip(equation.invars, layouts, strict=True)
    ]
    is_gather = equation.primitive.name == "gather"
    after = _layout_equation(
        mapped, equations.aval_of(result), whole if is_gather else split
    )
    # The operation now reads the laid out operands, and the last layout gives the
    # result that other equations know.
    between = equation.replace(
        invars=[e.outvars[0] for e in before],
        outvars=equations.variables_of(after.invars),
    )
    return [*before, between, after.replace(outvars=[result])]


def _indexed_axes(equation: JaxprEqn) -> tuple[int, ...] | None:
    """Return the axes that a gather or scatter indexes; None for other equations."""
    numbers: Any = equation.params.get("dimension_numbers")
    if equation.primitive.name == "gather":
        return tuple(numbers.start_index_map)
    if equation.primitive.name.startswith("scatter"):
        return tuple(numbers.scatter_dims_to_operand_dims)
    return None


def _layout_with_free_axes(axes: Sequence[int], rank: int) -> PartitionSpec:
    """Return a layout that leaves `axes` to the compiler and keeps the others whole."""
    free = PartitionSpec.UNCONSTRAINED
    return PartitionSpec(*(free if i in axes else None for i in range(rank)))


def _layout_equation(
    mapped: JaxprEqn, aval: jax.core.ShapedArray, spec: PartitionSpec
) -> JaxprEqn:
    """Return an equation that lays an array out as `spec`, for use inside `mapped`.

    The equation has variables of its own; the caller replaces them.
    """
    # Take the equation from a small program that JAX traces, so that JAX itself fills
    # in the parameters.
    params = mapped.params
    tiny = jax.shard_map(
        lambda x: jax.lax.with_sharding_constraint(x, spec),
        mesh=params["mesh"],
        in_specs=PartitionSpec(),
        out_specs=PartitionSpec(),
        axis_names=set(params["newly_manual_axes"]),
        check_vma=False,
    )
    given = jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
    (outer,) = jax.make_jaxpr(tiny)(given).eqns
    made: JaxprEqn = outer.params["jaxpr"].eqns[0]
    return made


# Programs inside programs.


def _map_equations(jaxpr: Jaxpr, fn: _Rewrite) -> Jaxpr:
    """Return a program with every equation replaced by `fn` of it.

    If `fn` changes no equation, return the same object.
    """
    new = [e for equation in jaxpr.eqns for e in fn(equation)]
    is_same = len(new) == len(jaxpr.eqns) and all(map(operator.is_, new, jaxpr.eqns))
    return jaxpr if is_same else jaxpr.replace(eqns=new)


def _map_inner(equation: JaxprEqn, fn: _Rewrite) -> JaxprEqn:
    """Return an equation with its inner programs rewritten.

    If `fn` changes nothing in them, return the same object.
    """
    new = {name: _map_parameter(p, fn) for name, p in equation.params.items()}
    is_same = all(new[name] is p for name, p in equation.params.items())
    return equation if is_same else equation.replace(params=new)


def _map_parameter(value: Any, fn: _Rewrite) -> Any:
    """Return a parameter of an equation with all programs in it rewritten."""
    if isinstance(value, tuple):
        new = tuple(_map_parameter(v, fn) for v in value)
        return value if all(map(operator.is_, new, value)) else new
    # A `Jaxpr` has equations; a `ClosedJaxpr` has them too, and wraps a `Jaxpr`.
    if hasattr(value, "eqns") and not hasattr(value, "jaxpr"):
        return _map_equations(value, fn)
    if hasattr(value, "jaxpr") and hasattr(value, "consts"):
        inner = _map_equations(value.jaxpr, fn)
        return value if inner is value.jaxpr else value.replace(jaxpr=inner)
    return value
