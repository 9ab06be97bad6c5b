"""Keeps programs away from splits of arrays for which XLA computes wrong numbers.

When an image is split along its space *and* its channels, XLA sums the gradient of a
convolution's kernel over all logical devices, although some of them hold the same part
of the sum. The gradient is then too large by the number of parts of the channels. So a
program that asks for such a split is refused. Variables that are stored split are
gathered before a program takes such a gradient, because from such variables the
compiler would split images by itself (decision 0017).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax

from unisono._src.machines.partition import Split


def check(jaxpr: Any) -> None:
    """Raise if a program asks for a split that XLA computes wrongly.

    Args:
        jaxpr: the program.

    Raises:
        ValueError: the gradient of a convolution's kernel is taken, and its input is
            split along both space and channels.
    """
    found = list(_equations(jaxpr))
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


def must_gather(jaxpr: Any, split: Split) -> bool:
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
            list(_equations(jaxpr, into_replicas=not is_mapped))
        )
    )


def _layouts_with_kernel_gradients(found: Sequence[Any]) -> list[tuple[int, ...]]:
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


def _split_axes(equation: Any) -> tuple[int, frozenset[int]]:
    """Return the rank of the array that is laid out, and the axes it is split along."""
    spec = equation.params["sharding"].spec
    axes = frozenset(i for i, names in enumerate(spec) if names)
    return equation.invars[0].aval.ndim, axes


def _layout(equation: Any) -> tuple[int, ...]:
    """Return the axes of batch, channels and space of a convolution's input."""
    return tuple(equation.params["dimension_numbers"].lhs_spec)


def _equations(jaxpr: Any, into_replicas: bool = True) -> Iterator[Any]:
    """Yield all equations of a program and of the programs inside it.

    Args:
        jaxpr: the program.
        into_replicas: whether to look into the programs of replicas too.
    """
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive.name == "shard_map" and not into_replicas:
            continue
        for part in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from _equations(inner, into_replicas)
