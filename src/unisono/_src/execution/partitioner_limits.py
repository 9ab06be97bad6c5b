"""Refuses or avoids what the compiler is known to get wrong when it splits arrays.

When an image is split along its space *and* its channels, XLA adds up the gradient of
a convolution's kernel over all logical devices, also those that hold the same part of
the sum: the gradient is too large by the number of parts of the channels. No wrong
number is worth a split. A program that asks for one is not made; and variables that are
stored split are gathered before a program takes such a gradient, because from them the
compiler would split images by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax

from unisono._src.machines.partition import Split


def check(jaxpr: Any) -> None:
    """Raise if a program has a split that the compiler gets wrong.

    Raises:
        ValueError: the gradient of a convolution's kernel is taken, and its input is
            split along both space and channels.
    """
    found = list(_equations(jaxpr))
    splits = {_split(e) for e in found if e.primitive.name == "sharding_constraint"}
    for _, channels, *space in _differentiated(found):
        for rank, axes in splits:
            if rank == len(space) + 2 and channels in axes and axes & {*space}:
                raise _wrong_gradient(axes, space, channels)


def must_gather(jaxpr: Any, split: Split) -> bool:
    """Whether a program may read a split variable only as a whole.

    Args:
        jaxpr: the program.
        split: how the variable is stored. Replicas that each have a part gather it by
            themselves; the compiler is concerned with the rest of the program.
    """
    is_mapped = split.is_over_replicas
    return bool(_differentiated(list(_equations(jaxpr, into_replicas=not is_mapped))))


def _differentiated(found: Sequence[Any]) -> list[tuple[int, ...]]:
    """Layouts of the convolutions of whose kernels a gradient is taken."""
    every = [_layout(e) for e in found if e.primitive.name == _CONVOLUTION]
    layouts = list(dict.fromkeys(every))
    # The gradient of a kernel is a later convolution with these two exchanged.
    return [
        (batch, channels, *space)
        for i, (batch, channels, *space) in enumerate(layouts)
        if (channels, batch, *space) in layouts[i:]
    ]


_CONVOLUTION = "conv_general_dilated"


def _wrong_gradient(
    axes: frozenset[int], space: Sequence[int], channels: int
) -> ValueError:
    return ValueError(
        f"An array is split along the axes {sorted(axes)} and convolved: those of "
        f"space are {sorted(space)}, that of the channels is {channels}. XLA computes "
        "the gradient of the kernel wrongly if both are split. Split along space or "
        "along the channels, each with or without the batch."
    )


def _split(equation: Any) -> tuple[int, frozenset[int]]:
    """The rank of an array, and the axes along which it is split."""
    spec = equation.params["sharding"].spec
    axes = frozenset(i for i, names in enumerate(spec) if names)
    return equation.invars[0].aval.ndim, axes


def _layout(equation: Any) -> tuple[int, ...]:
    """Axes of the batch, the channels and the space of a convolution's input."""
    return tuple(equation.params["dimension_numbers"].lhs_spec)


def _equations(jaxpr: Any, into_replicas: bool = True) -> Iterator[Any]:
    """All equations of a program, also in those inside it.

    Args:
        jaxpr: the program.
        into_replicas: whether to look into what replicas do, too.
    """
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive.name == "shard_map" and not into_replicas:
            continue
        for part in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from _equations(inner, into_replicas)
