"""Convolutions and pooling of images, volumes and sequences."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from unisono._src.foundation.public_names import publish
from unisono._src.ops import convolutions, shaping
from unisono._src.ops.tensors import Sizes, TensorLike


def conv1d(
    input: TensorLike,
    filters: TensorLike,
    stride: Sizes,
    padding: str | Sequence[Any],
    data_format: str = "NWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns a convolution over an axis.

    The arguments are those of TensorFlow's ``tf.nn.conv1d``; `name` has no effect.
    """
    return convolutions.convolve(
        "conv1d", 1, input, filters, stride, padding, data_format, dilations
    )


def conv2d(
    input: TensorLike,
    filters: TensorLike,
    strides: Sizes,
    padding: str | Sequence[Any],
    data_format: str = "NHWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns a convolution over two axes.

    The arguments are those of TensorFlow's ``tf.nn.conv2d``; `name` has no effect.
    """
    return convolutions.convolve(
        "conv2d", 2, input, filters, strides, padding, data_format, dilations
    )


def conv3d(
    input: TensorLike,
    filters: TensorLike,
    strides: Sizes,
    padding: str | Sequence[Any],
    data_format: str = "NDHWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns a convolution over three axes.

    The arguments are those of TensorFlow's ``tf.nn.conv3d``; `name` has no effect.
    """
    return convolutions.convolve(
        "conv3d", 3, input, filters, strides, padding, data_format, dilations
    )


def conv1d_transpose(
    input: TensorLike,
    filters: TensorLike,
    output_shape: Sizes,
    strides: Sizes,
    padding: str | Sequence[Any] = "SAME",
    data_format: str = "NWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the transpose of `conv1d`.

    The arguments are those of TensorFlow's ``tf.nn.conv1d_transpose``; `name` has no
    effect.
    """
    return convolutions.transpose(
        "conv1d_transpose",
        1,
        input,
        filters,
        output_shape,
        strides,
        padding,
        data_format,
        dilations,
    )


def conv2d_transpose(
    input: TensorLike,
    filters: TensorLike,
    output_shape: Sizes,
    strides: Sizes,
    padding: str | Sequence[Any] = "SAME",
    data_format: str = "NHWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the transpose of `conv2d`.

    The arguments are those of TensorFlow's ``tf.nn.conv2d_transpose``; `name` has no
    effect.
    """
    return convolutions.transpose(
        "conv2d_transpose",
        2,
        input,
        filters,
        output_shape,
        strides,
        padding,
        data_format,
        dilations,
    )


def conv3d_transpose(
    input: TensorLike,
    filters: TensorLike,
    output_shape: Sizes,
    strides: Sizes,
    padding: str | Sequence[Any] = "SAME",
    data_format: str = "NDHWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the transpose of `conv3d`.

    The arguments are those of TensorFlow's ``tf.nn.conv3d_transpose``; `name` has no
    effect.
    """
    return convolutions.transpose(
        "conv3d_transpose",
        3,
        input,
        filters,
        output_shape,
        strides,
        padding,
        data_format,
        dilations,
    )


def convolution(
    input: TensorLike,
    filters: TensorLike,
    strides: Sizes | None = None,
    padding: str | Sequence[Any] = "VALID",
    data_format: str | None = None,
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns a convolution over as many axes as the kernel has.

    The arguments are those of TensorFlow's ``tf.nn.convolution``; `name` has no effect.
    """
    return convolutions.convolve_any(
        input, filters, strides, padding, data_format, dilations
    )


def depthwise_conv2d(
    input: TensorLike,
    filter: TensorLike,
    strides: Sizes,
    padding: str | Sequence[Any],
    data_format: str | None = None,
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns a convolution of each channel by itself.

    The arguments are those of TensorFlow's ``tf.nn.depthwise_conv2d``; `name` has no
    effect.
    """
    return convolutions.convolve_depthwise(
        input, filter, strides, padding, data_format, dilations
    )


def separable_conv2d(
    input: TensorLike,
    depthwise_filter: TensorLike,
    pointwise_filter: TensorLike,
    strides: Sizes,
    padding: str | Sequence[Any],
    data_format: str | None = None,
    dilations: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns a convolution of channels, then across them.

    The arguments are those of TensorFlow's ``tf.nn.separable_conv2d``; `name` has no
    effect.
    """
    return convolutions.convolve_separable(
        input,
        depthwise_filter,
        pointwise_filter,
        strides,
        padding,
        data_format,
        dilations,
    )


def max_pool1d(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: str | Sequence[Any],
    data_format: str = "NWC",
    name: str | None = None,
) -> jax.Array:
    """Returns the largest elements of windows over one axis.

    The arguments are those of TensorFlow's ``tf.nn.max_pool1d``; `name` has no effect.
    """
    return convolutions.max_pool(
        "max_pool1d", 1, input, ksize, strides, padding, data_format
    )


def max_pool2d(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: str | Sequence[Any],
    data_format: str = "NHWC",
    name: str | None = None,
) -> jax.Array:
    """Returns the largest elements of windows over two axes.

    The arguments are those of TensorFlow's ``tf.nn.max_pool2d``; `name` has no effect.
    """
    return convolutions.max_pool(
        "max_pool2d", 2, input, ksize, strides, padding, data_format
    )


def max_pool3d(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: str | Sequence[Any],
    data_format: str = "NDHWC",
    name: str | None = None,
) -> jax.Array:
    """Returns the largest elements of windows over three axes.

    The arguments are those of TensorFlow's ``tf.nn.max_pool3d``; `name` has no effect.
    """
    return convolutions.max_pool(
        "max_pool3d", 3, input, ksize, strides, padding, data_format
    )


def avg_pool1d(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: str | Sequence[Any],
    data_format: str = "NWC",
    name: str | None = None,
) -> jax.Array:
    """Returns the means of windows over one axis.

    The arguments are those of TensorFlow's ``tf.nn.avg_pool1d``; `name` has no effect.
    """
    return convolutions.avg_pool(
        "avg_pool1d", 1, input, ksize, strides, padding, data_format
    )


def avg_pool2d(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: str | Sequence[Any],
    data_format: str = "NHWC",
    name: str | None = None,
) -> jax.Array:
    """Returns the means of windows over two axes.

    The arguments are those of TensorFlow's ``tf.nn.avg_pool2d``; `name` has no effect.
    """
    return convolutions.avg_pool(
        "avg_pool2d", 2, input, ksize, strides, padding, data_format
    )


def avg_pool3d(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: str | Sequence[Any],
    data_format: str = "NDHWC",
    name: str | None = None,
) -> jax.Array:
    """Returns the means of windows over three axes.

    The arguments are those of TensorFlow's ``tf.nn.avg_pool3d``; `name` has no effect.
    """
    return convolutions.avg_pool(
        "avg_pool3d", 3, input, ksize, strides, padding, data_format
    )


def max_pool(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: str | Sequence[Any],
    data_format: str | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the largest elements of windows over the axes of space.

    The arguments are those of TensorFlow's ``tf.nn.max_pool``; `name` has no effect.
    """
    return convolutions.pool_any(
        "max_pool", convolutions.max_pool, input, ksize, strides, padding, data_format
    )


def avg_pool(
    input: TensorLike,
    ksize: Sizes,
    strides: Sizes,
    padding: str | Sequence[Any],
    data_format: str | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the means of windows over the axes of space.

    The arguments are those of TensorFlow's ``tf.nn.avg_pool``; `name` has no effect.
    """
    return convolutions.pool_any(
        "avg_pool", convolutions.avg_pool, input, ksize, strides, padding, data_format
    )


def atrous_conv2d(
    value: TensorLike,
    filters: TensorLike,
    rate: int,
    padding: str,
    name: str | None = None,
) -> jax.Array:
    """Returns a convolution with holes in its kernel.

    The arguments are those of TensorFlow's ``tf.nn.atrous_conv2d``; `name` has no
    effect.
    """
    return convolutions.convolve(
        "atrous_conv2d", 2, value, filters, 1, padding, None, rate
    )


def space_to_depth(
    input: TensorLike,
    block_size: int,
    data_format: str = "NHWC",
    name: str | None = None,
) -> jax.Array:
    """Returns images in which blocks have become channels.

    The arguments are those of TensorFlow's ``tf.nn.space_to_depth``; `name` has no
    effect.
    """
    return shaping.space_to_depth(input, block_size, data_format)


def depth_to_space(
    input: TensorLike,
    block_size: int,
    data_format: str = "NHWC",
    name: str | None = None,
) -> jax.Array:
    """Returns images in which channels have become blocks.

    The arguments are those of TensorFlow's ``tf.nn.depth_to_space``; `name` has no
    effect.
    """
    return shaping.depth_to_space(input, block_size, data_format)


publish(
    "unisono.nn",
    conv1d,
    conv2d,
    conv3d,
    conv1d_transpose,
    conv2d_transpose,
    conv3d_transpose,
    convolution,
    depthwise_conv2d,
    separable_conv2d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool,
    avg_pool,
    atrous_conv2d,
    space_to_depth,
    depth_to_space,
)
