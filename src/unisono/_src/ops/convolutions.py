"""Convolutions, with TensorFlow's formats of strides and paddings."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from unisono._src.foundation import errors
from unisono._src.ops import kinds, tensors, windows
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import Sizes, TensorLike
from unisono._src.ops.windows import Padding

__all__ = [
    "atrous_conv2d",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "convolution",
    "depth_to_space",
    "depthwise_conv2d",
    "separable_conv2d",
    "space_to_depth",
]


@array_function("nn.conv1d")
def conv1d(
    input: TensorLike,
    filters: TensorLike,
    stride: Sizes,
    padding: Padding,
    data_format: str = "NWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns a convolution over one axis."""
    layout = windows.Layout("conv1d", 1, data_format)
    return _convolve_kernel(layout, input, filters, stride, padding, dilations)


@array_function("nn.conv2d")
def conv2d(
    input: TensorLike,
    filters: TensorLike,
    strides: Sizes,
    padding: Padding,
    data_format: str = "NHWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns a convolution over two axes."""
    layout = windows.Layout("conv2d", 2, data_format)
    return _convolve_kernel(layout, input, filters, strides, padding, dilations)


@array_function("nn.conv3d")
def conv3d(
    input: TensorLike,
    filters: TensorLike,
    strides: Sizes,
    padding: Padding,
    data_format: str = "NDHWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns a convolution over three axes."""
    layout = windows.Layout("conv3d", 3, data_format)
    return _convolve_kernel(layout, input, filters, strides, padding, dilations)


@array_function("nn.conv1d_transpose")
def conv1d_transpose(
    input: TensorLike,
    filters: TensorLike,
    output_shape: Sizes,
    strides: Sizes,
    padding: Padding = "SAME",
    data_format: str = "NWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the transpose of `conv1d`."""
    layout = windows.Layout("conv1d_transpose", 1, data_format)
    return _transpose(layout, input, filters, output_shape, strides, padding, dilations)


@array_function("nn.conv2d_transpose")
def conv2d_transpose(
    input: TensorLike,
    filters: TensorLike,
    output_shape: Sizes,
    strides: Sizes,
    padding: Padding = "SAME",
    data_format: str = "NHWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the transpose of `conv2d`."""
    layout = windows.Layout("conv2d_transpose", 2, data_format)
    return _transpose(layout, input, filters, output_shape, strides, padding, dilations)


@array_function("nn.conv3d_transpose")
def conv3d_transpose(
    input: TensorLike,
    filters: TensorLike,
    output_shape: Sizes,
    strides: Sizes,
    padding: Padding = "SAME",
    data_format: str = "NDHWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the transpose of `conv3d`."""
    layout = windows.Layout("conv3d_transpose", 3, data_format)
    return _transpose(layout, input, filters, output_shape, strides, padding, dilations)


@array_function("nn.convolution")
def convolution(
    input: TensorLike,
    filters: TensorLike,
    strides: Sizes | None = None,
    padding: Padding = "VALID",
    data_format: str | None = None,
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns a convolution over one to three axes, depending on the kernel."""
    rank = tensors.tensor(filters).ndim - 2
    if rank not in windows.LETTERS:
        raise ValueError(
            f"convolution takes filters of three to five axes, received {rank + 2}."
        )
    layout = windows.Layout("convolution", rank, data_format)
    return _convolve_kernel(layout, input, filters, strides, padding, dilations)


@array_function("nn.depthwise_conv2d")
def depthwise_conv2d(
    input: TensorLike,
    filter: TensorLike,
    strides: Sizes,
    padding: Padding,
    data_format: str | None = None,
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns a convolution that is applied to each channel separately."""
    layout = windows.Layout("depthwise_conv2d", 2, data_format)
    found, filters = _operands(layout, input, filter)
    height, width, channels, factor = filters.shape
    if channels != found.shape[layout.letters.index("C")]:
        raise errors.InvalidArgumentError(
            f"{layout.name}: a kernel for {channels} channels does not fit the shape "
            f"{list(found.shape)}."
        )
    how = layout.how(strides, padding, dilations)
    # A group for each channel, with `factor` kernels each.
    flat = filters.reshape(height, width, 1, channels * factor)
    return _convolve(layout, found, flat, how, channels)


@array_function("nn.separable_conv2d")
def separable_conv2d(
    input: TensorLike,
    depthwise_filter: TensorLike,
    pointwise_filter: TensorLike,
    strides: Sizes,
    padding: Padding,
    data_format: str | None = None,
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns a depthwise convolution, followed by a pointwise one."""
    inner = depthwise_conv2d(
        input, depthwise_filter, strides, padding, data_format, dilations
    )
    layout = windows.Layout("separable_conv2d", 2, data_format)
    return _convolve_kernel(layout, inner, pointwise_filter, 1, "VALID", None)


@array_function("nn.atrous_conv2d")
def atrous_conv2d(
    value: TensorLike,
    filters: TensorLike,
    rate: int,
    padding: str,
    name: str | None = None,
) -> jax.Array:
    """Returns a dilated convolution over two axes."""
    layout = windows.Layout("atrous_conv2d", 2, None)
    return _convolve_kernel(layout, value, filters, 1, padding, rate)


@array_function("nn.space_to_depth")
def space_to_depth(
    input: TensorLike,
    block_size: int,
    data_format: str = "NHWC",
    name: str | None = None,
) -> jax.Array:
    """Returns images with each block of pixels moved into channels."""
    found = tensors.tensor(input)
    image = _move_channels_last("space_to_depth", found, data_format)
    n, h, w, c = image.shape
    if h % block_size or w % block_size:
        raise errors.InvalidArgumentError(
            f"space_to_depth: {h}×{w} pixels cannot be divided in blocks of "
            f"{block_size}."
        )
    # Batch, row of blocks, row in its block, column of blocks, column in its block,
    # channel; then the two within a block go to the channels.
    parts = image.reshape(
        n, h // block_size, block_size, w // block_size, block_size, c
    )
    made = parts.transpose(0, 1, 3, 2, 4, 5)
    made = made.reshape(
        n, h // block_size, w // block_size, block_size * block_size * c
    )
    return _restore_channels(made, data_format)


@array_function("nn.depth_to_space")
def depth_to_space(
    input: TensorLike,
    block_size: int,
    data_format: str = "NHWC",
    name: str | None = None,
) -> jax.Array:
    """Returns images with channels moved into blocks of pixels."""
    found = tensors.tensor(input)
    image = _move_channels_last("depth_to_space", found, data_format)
    n, h, w, c = image.shape
    if c % (block_size * block_size):
        raise errors.InvalidArgumentError(
            f"depth_to_space: {c} channels cannot be divided by {block_size**2}."
        )
    # The other way round: the channels are row and column in a block, and the rest.
    parts = image.reshape(n, h, w, block_size, block_size, c // block_size**2)
    made = parts.transpose(0, 1, 3, 2, 4, 5)
    made = made.reshape(n, h * block_size, w * block_size, c // block_size**2)
    return _restore_channels(made, data_format)


def _convolve(
    layout: windows.Layout,
    x: jax.Array,
    kernel: jax.Array,
    how: windows.How,
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


def _convolve_kernel(
    layout: windows.Layout,
    x: TensorLike,
    filters: TensorLike,
    strides: Sizes | None,
    padding: Padding,
    dilations: Sizes | None,
) -> jax.Array:
    """Returns a convolution over one, two or three axes.

    Args:
        layout: the axes of the input.
        x: the input.
        filters: the kernel: space, input channels, output channels.
        strides: one number, one for each axis of space, or one for each axis.
        padding: "SAME", "VALID", or pairs for all axes.
        dilations: as `strides`; None for 1.

    Raises:
        InvalidArgumentError: types or shapes do not fit.
        ValueError: an argument is of another form.
    """
    found, kernel = _operands(layout, x, filters)
    channels = found.shape[layout.letters.index("C")]
    if channels % kernel.shape[-2]:
        raise errors.InvalidArgumentError(
            f"input depth must be evenly divisible by filter depth: {channels} vs "
            f"{kernel.shape[-2]} in {layout.name}."
        )
    how = layout.how(strides, padding, dilations)
    # A kernel for fewer channels convolves groups of channels, as in TensorFlow.
    return _convolve(layout, found, kernel, how, channels // kernel.shape[-2])


def _operands(
    layout: windows.Layout, x: TensorLike, filters: TensorLike
) -> tuple[jax.Array, jax.Array]:
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


def _transpose(
    layout: windows.Layout,
    x: TensorLike,
    filters: TensorLike,
    output_shape: Sizes,
    strides: Sizes,
    padding: Padding,
    dilations: Sizes | None,
) -> jax.Array:
    """Returns the transpose of a convolution: its gradient for the input `x`.

    Args:
        layout: the axes of the input.
        x: the input.
        filters: the kernel: space, output channels, input channels.
        output_shape: the shape of the result, or that of its space.
        strides: as for `_convolve_kernel`.
        padding: as for `_convolve_kernel`.
        dilations: as for `_convolve_kernel`.
    """
    found, kernel = _operands(layout, x, filters)
    shape = tensors.sizes(layout.name, "output_shape", output_shape)
    if len(shape) == layout.rank:
        # Sizes of space alone: batch and channels follow from the operands.
        shape = layout.full(shape, 0)
        channel = layout.letters.index("C")
        shape = tuple(
            found.shape[0] if i == 0 else kernel.shape[-2] if i == channel else n
            for i, n in enumerate(shape)
        )
    how = layout.how(strides, padding, dilations)
    like = jax.ShapeDtypeStruct(shape, found.dtype)

    def forward(y: jax.Array) -> jax.Array:
        return _convolve(layout, y, kernel, how, 1)

    made = jax.eval_shape(forward, like)
    if made.shape != found.shape:
        raise errors.InvalidArgumentError(
            f"{layout.name}: an output of shape {list(shape)} belongs to an input of "
            f"shape {list(made.shape)}, received {list(found.shape)}."
        )
    # JAX derives the transpose from the convolution itself, with its paddings.
    (result,) = jax.linear_transpose(forward, like)(found)
    return jnp.asarray(result)


def _move_channels_last(name: str, x: jax.Array, data_format: str) -> jax.Array:
    if x.ndim != 4 or data_format not in ("NHWC", "NCHW"):
        raise errors.InvalidArgumentError(
            f"{name} takes images of four axes as NHWC or NCHW, received the shape "
            f"{list(x.shape)} as {data_format}."
        )
    return x if data_format == "NHWC" else x.transpose(0, 2, 3, 1)


def _restore_channels(x: jax.Array, data_format: str) -> jax.Array:
    return x if data_format == "NHWC" else x.transpose(0, 3, 1, 2)
