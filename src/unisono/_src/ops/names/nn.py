"""Neural networks: activations, losses and normalizations."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

import jax

from unisono._src.foundation.public_names import publish
from unisono._src.ops import activations, dropouts, elementwise, kinds
from unisono._src.ops.tensors import Sizes, TensorLike


def relu(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the elements, zero for negative ones.

    The arguments are those of TensorFlow's ``tf.nn.relu``; `name` has no effect.
    """
    return elementwise.apply_unary("relu", activations.relu, features, kinds.REAL)


def relu6(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the elements, from 0 to 6.

    The arguments are those of TensorFlow's ``tf.nn.relu6``; `name` has no effect.
    """
    return elementwise.apply_unary("relu6", activations.relu6, features, kinds.REAL)


def elu(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns x, or exp(x) - 1 for negative x.

    The arguments are those of TensorFlow's ``tf.nn.elu``; `name` has no effect.
    """
    return elementwise.apply_unary("elu", jax.nn.elu, features, kinds.FLOAT)


def selu(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the scaled exponential linear unit.

    The arguments are those of TensorFlow's ``tf.nn.selu``; `name` has no effect.
    """
    return elementwise.apply_unary("selu", jax.nn.selu, features, kinds.FLOAT)


def softplus(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns log(1 + exp(x)).

    The arguments are those of TensorFlow's ``tf.nn.softplus``; `name` has no effect.
    """
    return elementwise.apply_unary("softplus", jax.nn.softplus, features, kinds.FLOAT)


def softsign(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns `x / (1 + |x|)`.

    The arguments are those of TensorFlow's ``tf.nn.softsign``; `name` has no effect.
    """
    return elementwise.apply_unary("softsign", jax.nn.soft_sign, features, kinds.FLOAT)


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
    """Returns an array plus one number for each channel.

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
    """Returns a normalized, scaled, shifted array.

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

    It draws other numbers than TensorFlow, others on each replica.
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
    """Returns the cross entropy; positive labels count with a weight.

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
    """Returns the Poisson loss of counts for log rates.

    The arguments are those of TensorFlow's ``tf.nn.log_poisson_loss``; `name` has no
    effect.
    """
    return activations.log_poisson_loss(targets, log_input, compute_full_loss)


def local_response_normalization(
    input: TensorLike,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
) -> jax.Array:
    """Returns images divided by a power of the squares of nearby channels.

    The arguments are those of TensorFlow's ``tf.nn.local_response_normalization``;
    `name` has no effect.
    """
    return activations.local_response_normalization(
        input, depth_radius, bias, alpha, beta
    )


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
    local_response_normalization,
)
