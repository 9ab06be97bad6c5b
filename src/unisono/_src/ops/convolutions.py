"""Convolutions and pooling, with TensorFlow's formats of strides and paddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from unisono._src.foundation import errors
from unisono._src.ops import kinds, tensors

_LETTERS = {1: "W", 2: "HW", 3: "DHW"}


@final
class _Layout:
    """Where the axes of an input are.

    Args:
        name: the name that the program calls.
        rank: the number of axes of space.
        data_format: TensorFlow's letters, such as "NHWC"; None for channels last.
    """

    def __init__(self, name: str, rank: int, data_format: str | None) -> None:
        space = _LETTERS[rank]
        last, first = f"N{space}C", f"NC{space}"
        self.name, self.rank = name, rank
        self.letters = last if data_format is None else data_format
        if self.letters not in (last, first):
            raise ValueError(
                f"data_format of {name} must be {last!r} or {first!r}, received "
                f"{data_format!r}."
            )
        # The first axis of space: behind the batch, or behind batch and channels.
        self.start = 2 if self.letters == first else 1

    def check(self, x: jax.Array) -> None:
        """Raises `InvalidArgumentError` unless an array has all axes."""
        if x.ndim != self.rank + 2:
            raise errors.InvalidArgumentError(
                f"{self.name} takes an array of {self.rank + 2} axes ({self.letters}), "
                f"received the shape {list(x.shape)}."
            )

    def space(self, what: str, x: Any) -> tuple[int, ...]:
        """Returns one number per axis of space; one number may stand for all axes."""
        found = tensors.sizes(self.name, what, x)
        if len(found) == 1:
            return found * self.rank
        if len(found) == self.rank:
            return found
        if len(found) != self.rank + 2:
            raise ValueError(
                f"`{what}` should be of length 1, {self.rank} or {self.rank + 2}, "
                f"received {x!r} in {self.name}."
            )
        rest = [n for i, n in enumerate(found) if i not in range(*self.span)]
        if set(rest) != {1}:
            raise errors.InvalidArgumentError(
                f"{self.name} has no {what} along batch and channels, received {x!r}."
            )
        return found[slice(*self.span)]

    @property
    def span(self) -> tuple[int, int]:
        """The first axis of space, and the axis after the last."""
        return self.start, self.start + self.rank

    def full(self, values: Sequence[Any], other: Any) -> tuple[Any, ...]:
        """Returns a value for each axis, from those of space."""
        made = [other] * (self.rank + 2)
        made[slice(*self.span)] = values
        return tuple(made)

    def padding(self, padding: Any) -> Any:
        """Returns "SAME", "VALID", or pairs for the axes of space."""
        if isinstance(padding, str):
            if padding.upper() not in ("SAME", "VALID"):
                raise ValueError(
                    f"padding of {self.name} must be 'SAME', 'VALID' or a list of "
                    f"pairs, received {padding!r}."
                )
            return padding.upper()
        pairs = tensors.require_known(self.name, "padding", padding)
        if len(pairs) != self.rank + 2 or any(len(pair) != 2 for pair in pairs):
            raise ValueError(
                f"padding of {self.name} has a pair for each of {self.rank + 2} axes, "
                f"received {padding!r}."
            )
        return pairs[slice(*self.span)]


def _convolve(
    layout: _Layout,
    x: jax.Array,
    kernel: jax.Array,
    how: tuple[Any, Any, Any],
    groups: int,
) -> jax.Array:
    strides, padding, dilations = how
    space = layout.letters[slice(*layout.span)]
    return tensors.call(
        layout.name,
        jax.lax.conv_general_dilated,
        x,
        kernel,
        strides,
        padding,
        rhs_dilation=dilations,
        # TensorFlow's kernels have space first, then input and output channels.
        dimension_numbers=(layout.letters, f"{space}IO", layout.letters),
        feature_group_count=groups,
    )


def convolve(
    name: str,
    rank: int,
    x: Any,
    filters: Any,
    strides: Any,
    padding: Any,
    data_format: str | None,
    dilations: Any,
) -> jax.Array:
    """Returns a convolution over one, two or three axes.

    Args:
        name: the name that the program calls.
        rank: the number of axes of space.
        x: the input.
        filters: the kernel: space, input channels, output channels.
        strides: one number, one for each axis of space, or one for each axis.
        padding: "SAME", "VALID", or pairs for all axes.
        data_format: the letters of the axes.
        dilations: as `strides`; None for 1.

    Raises:
        InvalidArgumentError: types or shapes do not fit.
        ValueError: an argument is of another form.
    """
    layout = _Layout(name, rank, data_format)
    found, kernel = _operands(layout, x, filters)
    channels = found.shape[layout.letters.index("C")]
    if channels % kernel.shape[-2]:
        raise errors.InvalidArgumentError(
            f"input depth must be evenly divisible by filter depth: {channels} vs "
            f"{kernel.shape[-2]} in {name}."
        )
    how = (
        layout.space("strides", 1 if strides is None else strides),
        layout.padding(padding),
        layout.space("dilations", 1 if dilations is None else dilations),
    )
    # A kernel for fewer channels convolves groups of channels, as in TensorFlow.
    return _convolve(layout, found, kernel, how, channels // kernel.shape[-2])


def _operands(layout: _Layout, x: Any, filters: Any) -> tuple[jax.Array, jax.Array]:
    """Returns input and kernel as arrays with the right numbers of axes."""
    found, kernel = tensors.to_one_type(layout.name, x, filters)
    kinds.check(layout.name, found.dtype, kinds.REAL)
    layout.check(found)
    if kernel.ndim != layout.rank + 2:
        raise errors.InvalidArgumentError(
            f"filters of {layout.name} have {layout.rank + 2} axes, received the shape "
            f"{list(kernel.shape)}."
        )
    return jnp.asarray(found), jnp.asarray(kernel)


def convolve_any(
    x: Any, filters: Any, strides: Any, padding: Any, data_format: Any, dilations: Any
) -> jax.Array:
    """Returns a convolution over as many axes as the kernel has."""
    rank = tensors.tensor(filters).ndim - 2
    if rank not in _LETTERS:
        raise ValueError(
            f"convolution takes filters of three to five axes, received {rank + 2}."
        )
    return convolve(
        "convolution", rank, x, filters, strides, padding, data_format, dilations
    )


def transpose(
    name: str,
    rank: int,
    x: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any,
    data_format: str | None,
    dilations: Any,
) -> jax.Array:
    """Returns the transpose of a convolution: its gradient for the input `x`.

    Args:
        name: the name that the program calls.
        rank: the number of axes of space.
        x: the input.
        filters: the kernel: space, output channels, input channels.
        output_shape: the shape of the result, or that of its space.
        strides: as for `convolve`.
        padding: as for `convolve`.
        data_format: as for `convolve`.
        dilations: as for `convolve`.
    """
    layout = _Layout(name, rank, data_format)
    found, kernel = _operands(layout, x, filters)
    shape = tensors.sizes(name, "output_shape", output_shape)
    if len(shape) == rank:
        # Sizes of space alone: batch and channels follow from the operands.
        shape = layout.full(shape, 0)
        channel = layout.letters.index("C")
        shape = tuple(
            found.shape[0] if i == 0 else kernel.shape[-2] if i == channel else n
            for i, n in enumerate(shape)
        )
    how = (
        layout.space("strides", strides),
        layout.padding(padding),
        layout.space("dilations", 1 if dilations is None else dilations),
    )
    like = jax.ShapeDtypeStruct(shape, found.dtype)

    def forward(y: jax.Array) -> jax.Array:
        return _convolve(layout, y, kernel, how, 1)

    made = jax.eval_shape(forward, like)
    if made.shape != found.shape:
        raise errors.InvalidArgumentError(
            f"{name}: an output of shape {list(shape)} belongs to an input of shape "
            f"{list(made.shape)}, received {list(found.shape)}."
        )
    # JAX derives the transpose from the convolution itself, with its paddings.
    (result,) = jax.linear_transpose(forward, like)(found)
    return jnp.asarray(result)


def convolve_depthwise(
    x: Any, kernel: Any, strides: Any, padding: Any, data_format: Any, dilations: Any
) -> jax.Array:
    """Returns a convolution of each channel by itself, with several kernels each."""
    name = "depthwise_conv2d"
    layout = _Layout(name, 2, data_format)
    found, filters = _operands(layout, x, kernel)
    height, width, channels, factor = filters.shape
    if channels != found.shape[layout.letters.index("C")]:
        raise errors.InvalidArgumentError(
            f"{name}: a kernel for {channels} channels does not fit the shape "
            f"{list(found.shape)}."
        )
    how = (
        layout.space("strides", strides),
        layout.padding(padding),
        layout.space("dilations", 1 if dilations is None else dilations),
    )
    # A group for each channel, with `factor` kernels each.
    flat = filters.reshape(height, width, 1, channels * factor)
    return _convolve(layout, found, flat, how, channels)


def convolve_separable(
    x: Any,
    kernel: Any,
    pointwise: Any,
    strides: Any,
    padding: Any,
    data_format: Any,
    dilations: Any,
) -> jax.Array:
    """Returns a convolution of each channel, then one across channels."""
    inner = convolve_depthwise(x, kernel, strides, padding, data_format, dilations)
    return convolve(
        "separable_conv2d", 2, inner, pointwise, 1, "VALID", data_format, None
    )


def _window(layout: _Layout, ksize: Any, strides: Any, padding: Any) -> Any:
    """Returns the arguments of a window: its sizes, strides and paddings."""
    sizes = layout.full(layout.space("ksize", ksize), 1)
    steps = layout.full(layout.space("strides", strides), 1)
    edges = layout.padding(padding)
    return sizes, steps, edges if isinstance(edges, str) else layout.full(edges, (0, 0))


def _pool_input(layout: _Layout, x: Any, allowed: str) -> jax.Array:
    found = tensors.tensor(x)
    kinds.check(layout.name, found.dtype, allowed)
    layout.check(found)
    return found


def max_pool(
    name: str,
    rank: int,
    x: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: Any,
) -> jax.Array:
    """Returns the largest elements of windows."""
    layout = _Layout(name, rank, data_format)
    found = _pool_input(layout, x, kinds.REAL)
    is_float = kinds.kind(found.dtype) == "f"
    # The identity of `max`: only with this value does JAX recognize the
    # reduction, whose gradient it knows.
    lowest = -jnp.inf if is_float else kinds.limits(found.dtype).min
    made: jax.Array = tensors.call(
        name,
        jax.lax.reduce_window,
        found,
        lowest,
        jax.lax.max,
        *_window(layout, ksize, strides, padding),
    )
    return made


def avg_pool(
    name: str,
    rank: int,
    x: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: Any,
) -> jax.Array:
    """Returns the means of windows; places beyond the edge do not count."""
    layout = _Layout(name, rank, data_format)
    found = _pool_input(layout, x, kinds.FLOAT)
    window = _window(layout, ksize, strides, padding)
    if not isinstance(window[2], str):
        raise ValueError(f"padding of {name} must be 'SAME' or 'VALID'.")

    def add_up(values: jax.Array) -> jax.Array:
        made: jax.Array = tensors.call(
            name, jax.lax.reduce_window, values, 0.0, jax.lax.add, *window
        )
        return made

    # The second sum counts the elements of each window that are not padding.
    return add_up(found) / add_up(jnp.ones(found.shape, found.dtype))


def pool_any(
    name: str,
    pool: Callable[..., jax.Array],
    x: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: Any,
) -> jax.Array:
    """Returns a pooling over as many axes as the input has."""
    rank = tensors.tensor(x).ndim - 2
    if rank not in _LETTERS:
        raise ValueError(
            f"Input tensor must be of rank 3, 4 or 5 but was {rank + 2} in {name}."
        )
    return pool(name, rank, x, ksize, strides, padding, data_format)
