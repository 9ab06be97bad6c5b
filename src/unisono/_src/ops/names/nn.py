"""Neural networks: activations, losses, normalizations, convolutions, pooling."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from unisono._src.foundation.public_names import publish
from unisono._src.ops import (
    activations,
    convolutions,
    dropouts,
    elementwise,
    kinds,
    shaping,
)
from unisono._src.ops.tensors import Sizes, TensorLike


def relu(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the elements, zero for negative ones.

    The arguments are those of TensorFlow's ``tf.nn.relu``; `name` has no effect.
    """
    return elementwise.unary("relu", activations.relu, features, kinds.REAL)


def relu6(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the elements, from 0 to 6.

    The arguments are those of TensorFlow's ``tf.nn.relu6``; `name` has no effect.
    """
    return elementwise.unary("relu6", activations.relu6, features, kinds.REAL)


def elu(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns x, or exp(x) - 1 for negative x.

    The arguments are those of TensorFlow's ``tf.nn.elu``; `name` has no effect.
    """
    return elementwise.unary("elu", jax.nn.elu, features, kinds.FLOAT)


def selu(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the scaled exponential linear unit.

    The arguments are those of TensorFlow's ``tf.nn.selu``; `name` has no effect.
    """
    return elementwise.unary("selu", jax.nn.selu, features, kinds.FLOAT)


def softplus(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns log(1 + exp(x)).

    The arguments are those of TensorFlow's ``tf.nn.softplus``; `name` has no effect.
    """
    return elementwise.unary("softplus", jax.nn.softplus, features, kinds.FLOAT)


def softsign(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns x / (1 + |x|).

    The arguments are those of TensorFlow's ``tf.nn.softsign``; `name` has no effect.
    """
    return elementwise.unary("softsign", jax.nn.soft_sign, features, kinds.FLOAT)


def leaky_relu(
    features: TensorLike, alpha: float = 0.2, name: str | None = None
) -> jax.Array:
    """Returns the elements, negative ones times `alpha`.

    The arguments are those of TensorFlow's ``tf.nn.leaky_relu``; `name` has no effect.
    """
    return activations.leaky_relu(features, alpha)


def crelu(features: TensorLike, axis: int = -1, name: str | None = None) -> jax.Array:
    """Returns the positive parts of x and of -x, side by side.

    The arguments are those of TensorFlow's ``tf.nn.crelu``; `name` has no effect.
    """
    return activations.crelu(features, axis)


def silu(features: TensorLike, beta: float = 1.0) -> jax.Array:
    """Returns x * sigmoid(beta * x).

    The arguments are those of TensorFlow's ``tf.nn.silu``.
    """
    return activations.silu(features, beta)


def gelu(
    features: TensorLike, approximate: bool = False, name: str | None = None
) -> jax.Array:
    """Returns x times the share of a normal distribution below x.

    The arguments are those of TensorFlow's ``tf.nn.gelu``; `name` has no effect.
    """
    return activations.gelu(features, approximate)


def softmax(
    logits: TensorLike, axis: int | None = None, name: str | None = None
) -> jax.Array:
    """Returns probabilities along an axis.

    The arguments are those of TensorFlow's ``tf.nn.softmax``; `name` has no effect.

    >>> softmax([0.0, 0.0]).tolist()
    [0.5, 0.5]
    """
    return activations.softmax("softmax", jax.nn.softmax, logits, axis)


def log_softmax(
    logits: TensorLike, axis: int | None = None, name: str | None = None
) -> jax.Array:
    """Returns the logarithms of probabilities along an axis.

    The arguments are those of TensorFlow's ``tf.nn.log_softmax``; `name` has no effect.
    """
    return activations.softmax("log_softmax", jax.nn.log_softmax, logits, axis)


def l2_normalize(
    x: TensorLike,
    axis: Sizes | None = None,
    epsilon: float = 1e-12,
    name: str | None = None,
    dim: Sizes | None = None,
) -> jax.Array:
    """Returns arrays divided by their norm over axes.

    The arguments are those of TensorFlow's ``tf.nn.l2_normalize``; `name` has no
    effect.
    """
    return activations.l2_normalize(x, axis, epsilon, dim)


def zero_fraction(value: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the share of zeros among the elements.

    The arguments are those of TensorFlow's ``tf.nn.zero_fraction``; `name` has no
    effect.
    """
    return activations.zero_fraction(value)


def l2_loss(t: TensorLike, name: str | None = None) -> jax.Array:
    """Returns half of the sum of the squares.

    The arguments are those of TensorFlow's ``tf.nn.l2_loss``; `name` has no effect.
    """
    return activations.l2_loss(t)


def bias_add(
    value: TensorLike,
    bias: TensorLike,
    data_format: str | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns an array to whose channels a vector was added.

    The arguments are those of TensorFlow's ``tf.nn.bias_add``; `name` has no effect.
    """
    return activations.bias_add(value, bias, data_format)


def moments(
    x: TensorLike,
    axes: Sizes | None,
    shift: TensorLike | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns mean and variance over axes.

    The arguments are those of TensorFlow's ``tf.nn.moments``; `name` has no effect.
    """
    return activations.moments(x, axes, shift, keepdims)


def batch_normalization(
    x: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    offset: TensorLike | None,
    scale: TensorLike | None,
    variance_epsilon: float,
    name: str | None = None,
) -> jax.Array:
    """Returns an array with other mean and variance.

    The arguments are those of TensorFlow's ``tf.nn.batch_normalization``; `name` has no
    effect.
    """
    return activations.batch_normalization(
        x, mean, variance, offset, scale, variance_epsilon
    )


def dropout(
    x: TensorLike,
    rate: float | TensorLike,
    noise_shape: Sizes | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns an array with a share of elements set to zero.

    The arguments are those of TensorFlow's ``tf.nn.dropout``; `name` has no effect.
    """
    return dropouts.dropout(x, rate, noise_shape, seed)


def embedding_lookup(
    params: TensorLike,
    ids: TensorLike,
    max_norm: float | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns rows of a table by their numbers.

    The arguments are those of TensorFlow's ``tf.nn.embedding_lookup``; `name` has no
    effect.

    In a compiled function a row that is not there reads as zeros, as on TensorFlow's
    accelerators.
    """
    return activations.embedding_lookup(params, ids, max_norm)


def softmax_cross_entropy_with_logits(
    labels: TensorLike, logits: TensorLike, axis: int = -1, name: str | None = None
) -> jax.Array:
    """Returns the cross entropy between probabilities and a softmax.

    The arguments are those of TensorFlow's ``tf.nn.softmax_cross_entropy_with_logits``;
    `name` has no effect.
    """
    return activations.softmax_cross_entropy(labels, logits, axis)


def sparse_softmax_cross_entropy_with_logits(
    labels: TensorLike, logits: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns the cross entropy between class numbers and a softmax.

    The arguments are those of TensorFlow's
    ``tf.nn.sparse_softmax_cross_entropy_with_logits``; `name` has no effect.

    In a compiled function the number of no class gives NaN, as on TensorFlow's
    accelerators.
    """
    return activations.sparse_softmax_cross_entropy(labels, logits)


def sigmoid_cross_entropy_with_logits(
    labels: TensorLike | None = None,
    logits: TensorLike | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the cross entropy between probabilities and sigmoids.

    The arguments are those of TensorFlow's ``tf.nn.sigmoid_cross_entropy_with_logits``;
    `name` has no effect.
    """
    return activations.sigmoid_cross_entropy(labels, logits)


def weighted_cross_entropy_with_logits(
    labels: TensorLike,
    logits: TensorLike,
    pos_weight: TensorLike,
    name: str | None = None,
) -> jax.Array:
    """Returns the cross entropy, in which positive labels have a weight.

    The arguments are those of TensorFlow's
    ``tf.nn.weighted_cross_entropy_with_logits``; `name` has no effect.
    """
    return activations.weighted_cross_entropy(labels, logits, pos_weight)


def log_poisson_loss(
    targets: TensorLike,
    log_input: TensorLike,
    compute_full_loss: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the loss of logarithms of rates for counts.

    The arguments are those of TensorFlow's ``tf.nn.log_poisson_loss``; `name` has no
    effect.
    """
    return activations.log_poisson_loss(targets, log_input, compute_full_loss)


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
    return convolutions.depthwise(
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
    return convolutions.separable(
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
    """Returns the largest elements of windows over 1 axes.

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
    """Returns the largest elements of windows over 2 axes.

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
    """Returns the largest elements of windows over 3 axes.

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
    """Returns the means of windows over 1 axes.

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
    """Returns the means of windows over 2 axes.

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
    """Returns the means of windows over 3 axes.

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


def local_response_normalization(
    input: TensorLike,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
) -> jax.Array:
    """Returns images divided by the squares of neighbouring channels.

    The arguments are those of TensorFlow's ``tf.nn.local_response_normalization``;
    `name` has no effect.
    """
    return activations.local_response_normalization(
        input, depth_radius, bias, alpha, beta
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
    relu,
    relu6,
    elu,
    selu,
    softplus,
    softsign,
    leaky_relu,
    crelu,
    silu,
    gelu,
    softmax,
    log_softmax,
    l2_normalize,
    zero_fraction,
    l2_loss,
    bias_add,
    moments,
    batch_normalization,
    dropout,
    embedding_lookup,
    softmax_cross_entropy_with_logits,
    sparse_softmax_cross_entropy_with_logits,
    sigmoid_cross_entropy_with_logits,
    weighted_cross_entropy_with_logits,
    log_poisson_loss,
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
    local_response_normalization,
    space_to_depth,
    depth_to_space,
)
