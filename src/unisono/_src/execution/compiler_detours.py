"""Rewrites programs that would crash XLA while it compiles them.

Two kinds of programs do so on CPU:

- *Indexing arrays that are split along several axes.* Where replicas have logical
  devices along more than one axis of the mesh, a gather or scatter whose arrays are
  split along an indexed axis and along another one fails a check inside XLA (jaxlib
  0.10 to 0.12, each with its own set of cases). The rewritten program keeps the
  indices, and all axes but the indexed ones, whole around every gather and scatter.
- *Empty arrays that enter a replica's program.* XLA of jaxlib 0.11 ends in a
  segmentation fault. An empty array holds no numbers, so the replica can make it
  itself.

The rewritten program computes the same numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec


def rewrite(jaxpr: Any) -> Any:
    """Return a program that computes the same and that XLA can compile.

    Args:
        jaxpr: the program of a whole function. It contains its gradients already; none
            is taken of it afterwards.
    """
    return _map_equations(jaxpr, _rewrite_replicas)


def _rewrite_replicas(equation: Any) -> list[Any]:
    """Return the equations that replace one equation outside the replicas."""
    if equation.primitive.name != "shard_map":
        return [_map_inner(equation, _rewrite_replicas)]
    body = _make_empty_inputs(equation.params["jaxpr"])
    if _has_several_logical_axes(equation):
        body = _map_equations(body, lambda e: _rewrite_indexing(e, equation))
    if body is equation.params["jaxpr"]:
        return [equation]
    return [equation.replace(params={**equation.params, "jaxpr": body})]


def _has_several_logical_axes(mapped: Any) -> bool:
    """Whether each of several replicas is split along more than one mesh axis."""
    # A `shard_map` is manual over the replica axis; all other axes of the mesh are
    # logical devices of a replica, which the compiler uses as it likes (decision 0016).
    sizes = dict(mapped.params["mesh"].shape)
    manual = mapped.params["newly_manual_axes"]
    others = [name for name, size in sizes.items() if name not in manual and size > 1]
    return len(others) > 1 and any(sizes[name] > 1 for name in manual)


# Empty arrays.


def _make_empty_inputs(jaxpr: Any) -> Any:
    """Return a replica's program that makes its empty inputs itself."""
    made = {v: _empty_array_equation(v.aval) for v in jaxpr.invars if _is_empty(v.aval)}
    if not made:
        return jaxpr

    def swap(var: Any) -> Any:
        # Only a literal has `val`. It cannot be hashed, and it is never an input.
        is_made = not hasattr(var, "val") and var in made
        return made[var].outvars[0] if is_made else var

    old = [e.replace(invars=[swap(v) for v in e.invars]) for e in jaxpr.eqns]
    outputs = [swap(v) for v in jaxpr.outvars]
    return jaxpr.replace(eqns=[*made.values(), *old], outvars=outputs)


def _is_empty(aval: Any) -> bool:
    """Whether an array has no elements; keys of random numbers are left alone."""
    return 0 in aval.shape and not jnp.issubdtype(aval.dtype, jax.dtypes.extended)


def _empty_array_equation(aval: Any) -> Any:
    """Return an equation that makes an empty array of the given shape."""
    zero = np.zeros((), aval.dtype)
    traced = jax.make_jaxpr(lambda: jax.lax.broadcast_in_dim(zero, aval.shape, ()))()
    (made,) = traced.eqns
    return made


# Indexing.


def _rewrite_indexing(equation: Any, mapped: Any) -> list[Any]:
    """Return a gather or scatter in which only the indexed axes may be split."""
    axes = _indexed_axes(equation)
    if axes is None:
        return [_map_inner(equation, lambda e: _rewrite_indexing(e, mapped))]
    array, *others = equation.invars
    (result,) = equation.outvars
    whole, split = PartitionSpec(), _layout_with_free_axes(axes, array.aval.ndim)
    layouts = [split, *(whole for _ in others)]
    before = [
        _layout_equation(mapped, var.aval, spec).replace(invars=[var])
        for var, spec in zip(equation.invars, layouts, strict=True)
    ]
    is_gather = equation.primitive.name == "gather"
    after = _layout_equation(mapped, result.aval, whole if is_gather else split)
    # The operation now reads the laid out operands, and the last layout gives the
    # result that other equations know.
    between = equation.replace(
        invars=[e.outvars[0] for e in before], outvars=after.invars
    )
    return [*before, between, after.replace(outvars=[result])]


def _indexed_axes(equation: Any) -> tuple[int, ...] | None:
    """Return the axes that a gather or scatter indexes; None for other equations."""
    numbers = equation.params.get("dimension_numbers")
    if equation.primitive.name == "gather":
        return tuple(numbers.start_index_map)
    if equation.primitive.name.startswith("scatter"):
        return tuple(numbers.scatter_dims_to_operand_dims)
    return None


def _layout_with_free_axes(axes: Sequence[int], rank: int) -> PartitionSpec:
    """Return a layout that leaves `axes` to the compiler and keeps the others whole."""
    free = PartitionSpec.UNCONSTRAINED
    return PartitionSpec(*(free if i in axes else None for i in range(rank)))


def _layout_equation(mapped: Any, aval: Any, spec: PartitionSpec) -> Any:
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
    (made,) = outer.params["jaxpr"].eqns
    return made


# Programs inside programs.


def _map_equations(jaxpr: Any, fn: Callable[[Any], list[Any]]) -> Any:
    """Return a program with every equation replaced by `fn` of it.

    If `fn` changes no equation, return the same object.
    """
    new = [e for equation in jaxpr.eqns for e in fn(equation)]
    is_same = len(new) == len(jaxpr.eqns) and all(map(operator.is_, new, jaxpr.eqns))
    return jaxpr if is_same else jaxpr.replace(eqns=new)


def _map_inner(equation: Any, fn: Callable[[Any], list[Any]]) -> Any:
    """Return an equation with its inner programs rewritten.

    If `fn` changes nothing in them, return the same object.
    """
    new = {name: _map_parameter(p, fn) for name, p in equation.params.items()}
    is_same = all(new[name] is p for name, p in equation.params.items())
    return equation if is_same else equation.replace(params=new)


def _map_parameter(value: Any, fn: Callable[[Any], list[Any]]) -> Any:
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
