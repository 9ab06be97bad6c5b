"""Pooling: the largest elements or the means of windows."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from unisono._src.ops import kinds, tensors, windows
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import Sizes, TensorLike
from unisono._src.ops.windows import Padding

__all__ = [
    "avg_pool",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "max_pool",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
]

# The sizes, strides and paddings of a window.
_Window = tuple[tuple[int, ...], tuple[int, ...], str | windows.Pairs]


@array_function("nn.max_pool1d")
def max_pool1d(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: Padding,
    data_format: str = "NWC",
    name: str | None = None,
) -> jax.Array:
    """Returns the largest elements of windows over one axis."""
    layout = windows.Layout("max_pool1d", 1, data_format)
    return _max_pool(layout, input, ksize, strides, padding)


@array_function("nn.max_pool2d")
def max_pool2d(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: Padding,
    data_format: str = "NHWC",
    name: str | None = None,
) -> jax.Array:
    """Returns the largest elements of windows over two axes."""
    layout = windows.Layout("max_pool2d", 2, data_format)
    return _max_pool(layout, input, ksize, strides, padding)


@array_function("nn.max_pool3d")
def max_pool3d(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: Padding,
    data_format: str = "NDHWC",
    name: str | None = None,
) -> jax.Array:
    """Returns the largest elements of windows over three axes."""
    layout = windows.Layout("max_pool3d", 3, data_format)
    return _max_pool(layout, input, ksize, strides, padding)


@array_function("nn.max_pool")
def max_pool(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: Padding,
    data_format: str | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the largest elements of windows over the axes of space."""
    layout = _find_layout("max_pool", input, data_format)
    return _max_pool(layout, input, ksize, strides, padding)


@array_function("nn.avg_pool1d")
def avg_pool1d(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: Padding,
    data_format: str = "NWC",
    name: str | None = None,
) -> jax.Array:
    """Returns the means of windows over one axis."""
    layout = windows.Layout("avg_pool1d", 1, data_format)
    return _avg_pool(layout, input, ksize, strides, padding)


@array_function("nn.avg_pool2d")
def avg_pool2d(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: Padding,
    data_format: str = "NHWC",
    name: str | None = None,
) -> jax.Array:
    """Returns the means of windows over two axes."""
    layout = windows.Layout("avg_pool2d", 2, data_format)
    return _avg_pool(layout, input, ksize, strides, padding)


@array_function("nn.avg_pool3d")
def avg_pool3d(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: Padding,
    data_format: str = "NDHWC",
    name: str | None = None,
) -> jax.Array:
    """Returns the means of windows over three axes."""
    layout = windows.Layout("avg_pool3d", 3, data_format)
    return _avg_pool(layout, input, ksize, strides, padding)


@array_function("nn.avg_pool")
def avg_pool(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: Padding,
    data_format: str | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the means of windows over the axes of space."""
    layout = _find_layout("avg_pool", input, data_format)
    return _avg_pool(layout, input, ksize, strides, padding)


def _max_pool(
    layout: windows.Layout,
    x: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: Padding,
) -> jax.Array:
    """Returns the largest elements of windows."""
    found = _pool_input(layout, x, kinds.REAL)
    is_float = kinds.kind(found.dtype) == "f"
    # The identity of `max`: only with this value does JAX recognize the
    # reduction, whose gradient it knows.
    lowest = -jnp.inf if is_float else kinds.limits(found.dtype).min
    made: jax.Array = tensors.call(
        layout.name,
        jax.lax.reduce_window,
        found,
        lowest,
        jax.lax.max,
        *_window(layout, ksize, strides, padding),
    )
    return made


def _avg_pool(
    layout: windows.Layout,
    x: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: Padding,
) -> jax.Array:
    """Returns the means of windows; places beyond the edge do not count."""
    found = _pool_input(layout, x, kinds.FLOAT)
    window = _window(layout, ksize, strides, padding)
    if not isinstance(window[2], str):
        raise ValueError(f"padding of {layout.name} must be 'SAME' or 'VALID'.")

    def add_up(values: jax.Array) -> jax.Array:
        made: jax.Array = tensors.call(
            layout.name, jax.lax.reduce_window, values, 0.0, jax.lax.add, *window
        )
        return made

    # The second sum counts the elements of each window that are not padding.
    return add_up(found) / add_up(jnp.ones(found.shape, found.dtype))


def _find_layout(name: str, x: TensorLike, data_format: str | None) -> windows.Layout:
    """Returns the layout of an input that has any number of axes."""
    rank = tensors.tensor(x).ndim - 2
    if rank not in windows.LETTERS:
        raise ValueError(
            f"Input tensor must be of rank 3, 4 or 5 but was {rank + 2} in {name}."
        )
    return windows.Layout(name, rank, data_format)


def _window(
    layout: windows.Layout, ksize: Sizes, strides: Sizes, padding: Padding
) -> _Window:
    """Returns the arguments of a window: its sizes, strides and paddings."""
    sizes = layout.full(layout.space("ksize", ksize), 1)
    steps = layout.full(layout.space("strides", strides), 1)
    edges = layout.padding(padding)
    return sizes, steps, edges if isinstance(edges, str) else layout.full(edges, (0, 0))


def _pool_input(layout: windows.Layout, x: TensorLike, allowed: str) -> jax.Array:
    found = tensors.tensor(x)
    kinds.check(layout.name, found.dtype, allowed)
    layout.check(found)
    return found
