"""Activations, normalizations and losses of neural networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors
from unisono._src.ops import (
    axis_functions,
    clipping,
    elementwise,
    indexing,
    kinds,
    random_draws,
    shaping,
    tensors,
)
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import Sizes, TensorLike
from unisono._src.training import nn
from unisono._src.values import jax_tapes

__all__ = [
    "batch_normalization",
    "bias_add",
    "crelu",
    "dropout",
    "elu",
    "embedding_lookup",
    "gelu",
    "l2_loss",
    "l2_normalize",
    "leaky_relu",
    "local_response_normalization",
    "log_poisson_loss",
    "log_softmax",
    "lrn",
    "moments",
    "relu",
    "relu6",
    "selu",
    "sigmoid_cross_entropy_with_logits",
    "silu",
    "softmax",
    "softmax_cross_entropy_with_logits",
    "softplus",
    "softsign",
    "sparse_softmax_cross_entropy_with_logits",
    "swish",
    "weighted_cross_entropy_with_logits",
    "zero_fraction",
]


# Of the scaled exponential linear unit.
_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


@array_function("nn.relu")
def relu(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the elements, with zero in place of negative ones."""
    return elementwise.apply_unary("relu", _relu, features, kinds.REAL)


@array_function("nn.relu6")
def relu6(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the elements, limited to the range from 0 to 6."""
    return elementwise.apply_unary("relu6", _relu6, features, kinds.REAL)


@array_function("nn.elu")
def elu(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns x, or exp(x) - 1 for negative x."""
    return elementwise.apply_unary("elu", jax.nn.elu, features, kinds.FLOAT)


@array_function("nn.selu")
def selu(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the scaled exponential linear unit."""
    return elementwise.apply_unary("selu", _selu, features, kinds.FLOAT)


def _selu(x: Any) -> Any:
    # `jax.nn.selu` has the slope of the negative side at 0.
    below = _SELU_ALPHA * jnp.expm1(jnp.minimum(x, jnp.zeros((), x.dtype)))
    return jnp.asarray(_SELU_SCALE, x.dtype) * jnp.where(x >= 0, x, below)


@array_function("nn.softplus", "math.softplus")
def softplus(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns log(1 + exp(x))."""
    return elementwise.apply_unary("softplus", jax.nn.softplus, features, kinds.FLOAT)


@array_function("nn.softsign", "math.softsign")
def softsign(features: TensorLike, name: str | None = None) -> jax.Array:
    """Returns `x / (1 + |x|)`."""
    return elementwise.apply_unary("softsign", jax.nn.soft_sign, features, kinds.FLOAT)


@array_function("nn.leaky_relu")
def leaky_relu(
    features: TensorLike, alpha: float = 0.2, name: str | None = None
) -> jax.Array:
    """Returns the elements, with negative ones multiplied by `alpha`."""
    found = tensors.tensor(features)
    kinds.check("leaky_relu", found.dtype, kinds.REAL)
    if kinds.kind(found.dtype) == "i":
        found = found.astype(jnp.float32)
    factor = jnp.asarray(tensors.unwrap(alpha), found.dtype)
    return jnp.where(found > 0, found, found * factor)


@array_function("nn.crelu")
def crelu(features: TensorLike, axis: int = -1, name: str | None = None) -> jax.Array:
    """Returns relu(x) and relu(-x), concatenated along an axis."""
    found = tensors.tensor(features)
    kinds.check("crelu", found.dtype, kinds.SIGNED)
    along = axis_functions.find_axis("crelu", axis, found.ndim)
    return _relu(jnp.concatenate([found, -found], along))


@array_function("nn.silu", "nn.swish")
def silu(features: TensorLike, beta: float = 1.0) -> jax.Array:
    """Returns x * sigmoid(beta * x)."""
    found = _floats("silu", features)
    factor = jnp.asarray(tensors.unwrap(beta), found.dtype)
    return found * jax.nn.sigmoid(found * factor)


swish = silu


@array_function("nn.gelu")
def gelu(
    features: TensorLike, approximate: bool = False, name: str | None = None
) -> jax.Array:
    """Returns x times the cumulative standard normal distribution at x.

    Raises:
        ValueError: the elements are not floats.
    """
    found = tensors.tensor(features)
    if kinds.kind(found.dtype) != "f":
        raise ValueError(
            "`features.dtype` must be a floating point tensor. Received: "
            f"{found.dtype}."
        )
    return jax.nn.gelu(found, approximate=bool(approximate))


@array_function("nn.softmax", "math.softmax")
def softmax(
    logits: TensorLike, axis: int | None = None, name: str | None = None
) -> jax.Array:
    """Returns the softmax of logits along an axis.

    >>> softmax([0.0, 0.0]).tolist()
    [0.5, 0.5]
    """
    return _softmax("softmax", jax.nn.softmax, logits, axis)


@array_function("nn.log_softmax", "math.log_softmax")
def log_softmax(
    logits: TensorLike, axis: int | None = None, name: str | None = None
) -> jax.Array:
    """Returns the logarithm of the softmax along an axis."""
    return _softmax("log_softmax", jax.nn.log_softmax, logits, axis)


@array_function("nn.l2_normalize", "math.l2_normalize", "linalg.l2_normalize")
def l2_normalize(
    x: TensorLike,
    axis: Sizes | None = None,
    epsilon: float = 1e-12,
    name: str | None = None,
    dim: Sizes | None = None,
) -> jax.Array:
    """Returns an array divided by its L2 norm over the given axes."""
    found = tensors.tensor(x)
    kinds.check("l2_normalize", found.dtype, kinds.INEXACT)
    if dim is not None and axis is not None:
        raise ValueError("Cannot specify both 'axis' and 'dim' in l2_normalize.")
    axes = axis_functions.find_axes(
        "l2_normalize", dim if axis is None else axis, found.ndim
    )
    total = jnp.sum(jnp.square(jnp.abs(found)), axes, keepdims=True)
    limit = jnp.asarray(epsilon, total.dtype)
    return found * jax.lax.rsqrt(jnp.maximum(total, limit)).astype(found.dtype)


@array_function("nn.zero_fraction", "math.zero_fraction")
def zero_fraction(value: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the fraction of the elements that are zero."""
    found = tensors.tensor(value)
    count = jnp.sum(found == 0, dtype=jnp.int32)
    return count.astype(jnp.float32) / jnp.asarray(found.size, jnp.float32)


@array_function("nn.l2_loss")
def l2_loss(t: TensorLike, name: str | None = None) -> jax.Array:
    """Returns half the sum of the squares of the elements."""
    found = _floats("l2_loss", t)
    return jnp.sum(jnp.square(found)) / 2


@array_function("nn.bias_add")
def bias_add(
    value: TensorLike,
    bias: TensorLike,
    data_format: str | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns an array with a number added to each channel.

    Raises:
        ValueError: `data_format` is unknown.
    """
    found, extra = tensors.to_one_type("bias_add", value, bias)
    kinds.check("bias_add", found.dtype, kinds.NUMBERS)
    if data_format is not None and data_format[:2] != "NC" and data_format[-1] != "C":
        raise ValueError(
            "`data_format` must be of the form `N...C` or `NC...`. Received: "
            f"data_format={data_format}."
        )
    is_first = data_format is not None and data_format[:2] == "NC"
    along = 1 if is_first else found.ndim - 1
    if found.ndim < 2 or extra.ndim != 1 or extra.shape[0] != found.shape[along]:
        raise errors.InvalidArgumentError(
            f"bias_add: a bias of shape {list(extra.shape)} does not fit the channels "
            f"of an array of shape {list(found.shape)}."
        )
    shape = [1] * found.ndim
    shape[along] = extra.shape[0]
    return jnp.add(found, jnp.reshape(extra, shape))


@array_function("nn.moments")
def moments(
    x: TensorLike,
    axes: Sizes | None,
    shift: TensorLike | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns the mean and the variance over the given axes."""
    found = tensors.tensor(x)
    kinds.check("moments", found.dtype, kinds.NUMBERS)
    along = axis_functions.find_axes("moments", axes, found.ndim)
    # TensorFlow sums half precision in float32.
    wide = found.astype(jnp.float32) if found.dtype == jnp.float16 else found
    mean = axis_functions.mean(wide, along, True)
    # The gradient of the variance by the mean is zero, so it is left out.
    distance = jnp.square(wide - jax.lax.stop_gradient(mean))
    variance = axis_functions.mean(distance, along, bool(keepdims))
    mean = mean if keepdims else jnp.squeeze(mean, along)
    return mean.astype(found.dtype), variance.astype(found.dtype)


@array_function("nn.batch_normalization")
def batch_normalization(
    x: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    offset: TensorLike | None,
    scale: TensorLike | None,
    variance_epsilon: float,
    name: str | None = None,
) -> jax.Array:
    """Returns a normalized, scaled, shifted array."""
    found, middle, spread = tensors.to_one_type(
        "batch_normalization", x, mean, variance
    )
    kinds.check("batch_normalization", found.dtype, kinds.FLOAT)
    factor = jax.lax.rsqrt(spread + jnp.asarray(variance_epsilon, found.dtype))
    if scale is not None:
        factor = factor * tensors.to_one_type("batch_normalization", found, scale)[1]
    # Joined first, as in TensorFlow: the array itself is multiplied and added to once.
    shift = -middle * factor
    if offset is not None:
        shift = tensors.to_one_type("batch_normalization", found, offset)[1] + shift
    made: jax.Array = tensors.call(
        "batch_normalization", lambda: found * factor + shift
    )
    return made


@array_function(
    "nn.dropout",
    difference=(
        "The random numbers differ from TensorFlow's, and they differ between replicas."
    ),
)
def dropout(
    x: TensorLike,
    rate: float | TensorLike,
    noise_shape: Sizes | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns an array with random elements set to zero, and the others scaled up.

    Args:
        x: an array of floats.
        rate: the fraction of elements that are set to zero, in the range [0, 1).
        noise_shape: the shape of the random numbers, which are broadcast to `x`. The
            default is the shape of `x`. None as a size stands for that of `x`.
        seed: a seed for this operation; see `unisono.random.set_seed`.
        name: has no effect.

    Raises:
        ValueError: the elements are not floats, or `rate` is out of range.
    """
    found = tensors.tensor(x)
    if kinds.kind(found.dtype) != "f":
        raise ValueError(
            "`x.dtype` must be a floating point tensor as `x` will be scaled. "
            f"Received: x_dtype={found.dtype}."
        )
    given = tensors.unwrap(rate)
    if isinstance(given, (int, float)):
        if not 0 <= given < 1:
            raise ValueError(
                "`rate` must be a scalar tensor or a float in the range [0, 1). "
                f"Received: rate={rate}."
            )
        if given == 0:
            return found
    share = jnp.asarray(given, found.dtype)
    # Replicas draw different numbers.
    draws = random_draws.uniform(_noise_shape(noise_shape, found.shape), seed=seed)
    kept = draws.astype(found.dtype) >= share
    return jnp.where(kept, found / (1 - share), jnp.zeros((), found.dtype))


@array_function(
    "nn.embedding_lookup",
    difference=(
        "In a compiled function an index out of range reads zeros, as on TensorFlow's "
        "accelerators; eagerly it is an error."
    ),
)
def embedding_lookup(
    params: TensorLike,
    ids: TensorLike,
    max_norm: float | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the rows of a table at the given indices.

    Raises:
        ValueError: `params` is an empty list.
    """
    if nn.has_rows_elsewhere(params):
        return nn.embedding_lookup(cast("Any", params), cast("Any", ids), max_norm)
    parts = params if isinstance(params, (list, tuple)) else [params]
    if not parts:
        raise ValueError("Must specify non-empty `params` in embedding_lookup.")
    table = tensors.tensor(parts[0]) if len(parts) == 1 else shaping.concat(parts, 0)
    rows = indexing.gather(table, ids, axis=0)
    if max_norm is None:
        return rows
    axes = tuple(range(jnp.ndim(tensors.tensor(ids)), rows.ndim))
    return clipping.clip_by_norm(rows, max_norm, axes)


@array_function("nn.softmax_cross_entropy_with_logits")
def softmax_cross_entropy_with_logits(
    labels: TensorLike, logits: TensorLike, axis: int = -1, name: str | None = None
) -> jax.Array:
    """Returns the cross entropy between probabilities and the softmax of logits."""
    name = "softmax_cross_entropy_with_logits"
    scores = tensors.tensor(logits)
    wanted = tensors.tensor(labels)
    kinds.check(name, scores.dtype, kinds.FLOAT)
    kinds.check(name, wanted.dtype, kinds.REAL)
    wanted = wanted.astype(scores.dtype)
    elementwise.check_shapes(name, wanted, scores)
    along = axis_functions.find_axis(name, axis, scores.ndim)
    return -jnp.sum(wanted * jax.nn.log_softmax(scores, along), along)


@array_function(
    "nn.sparse_softmax_cross_entropy_with_logits",
    difference=(
        "In a compiled function a label out of range gives NaN, as on TensorFlow's "
        "accelerators; eagerly it is an error."
    ),
)
def sparse_softmax_cross_entropy_with_logits(
    labels: TensorLike, logits: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns the cross entropy between class indices and the softmax of logits.

    Raises:
        InvalidArgumentError: in eager code, a label is out of range.
        ValueError: the shapes do not match.
    """
    name = "sparse_softmax_cross_entropy_with_logits"
    scores, classes = _floats(name, logits), tensors.tensor(labels)
    kinds.check(name, classes.dtype, kinds.INTEGER)
    if not scores.ndim or classes.shape != scores.shape[:-1]:
        raise ValueError(
            "`labels.shape` must equal `logits.shape` except for the last dimension. "
            f"Received: labels.shape={classes.shape} and logits.shape={scores.shape}."
        )
    count = scores.shape[-1]
    if not jax_tapes.is_traced(classes):
        axis_functions.check_bounds(name, classes, count)
    spread = jax.nn.log_softmax(scores, -1)
    own = jnp.take_along_axis(spread, classes[..., None], -1, mode="fill")
    # On accelerators TensorFlow gives NaN for the number of no class.
    is_class = (classes >= 0) & (classes < count)
    return jnp.where(is_class, -own[..., 0], jnp.nan)


@array_function("nn.sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_with_logits(
    labels: TensorLike | None = None,
    logits: TensorLike | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the cross entropy between probabilities and the sigmoids of logits."""
    wanted, scores = _logits("sigmoid_cross_entropy_with_logits", labels, logits)
    # TensorFlow's form, in which no exponential can overflow.
    return jax.nn.relu(scores) - scores * wanted + jnp.log1p(jnp.exp(-jnp.abs(scores)))


@array_function("nn.weighted_cross_entropy_with_logits")
def weighted_cross_entropy_with_logits(
    labels: TensorLike,
    logits: TensorLike,
    pos_weight: TensorLike,
    name: str | None = None,
) -> jax.Array:
    """Returns the sigmoid cross entropy, with a weight for positive labels."""
    name = "weighted_cross_entropy_with_logits"
    wanted, scores = _logits(name, labels, logits)
    _, factor = tensors.to_one_type(name, scores, pos_weight)
    weight = 1 + (factor - 1) * wanted
    # log(1 + exp(-scores)), in a form that cannot overflow.
    rest = jnp.log1p(jnp.exp(-jnp.abs(scores))) + jax.nn.relu(-scores)
    return jnp.add((1 - wanted) * scores, weight * rest)


@array_function("nn.log_poisson_loss")
def log_poisson_loss(
    targets: TensorLike,
    log_input: TensorLike,
    compute_full_loss: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the Poisson loss of counts, given the logarithms of the rates."""
    scores, counts = tensors.to_one_type("log_poisson_loss", log_input, targets)
    kinds.check("log_poisson_loss", scores.dtype, kinds.FLOAT)
    if scores.shape != counts.shape:
        raise ValueError(
            "`log_input` and `targets` must have the same shape, received "
            f"({scores.shape} vs {counts.shape})."
        )
    loss: jax.Array = jnp.exp(scores) - scores * counts
    if not compute_full_loss:
        return loss
    # Stirling's formula for the logarithm of the factorial; of 0 and 1 it is 0.
    stirling = counts * jnp.log(counts) - counts + 0.5 * jnp.log(2 * np.pi * counts)
    is_small = (counts >= 0) & (counts <= 1)
    return loss + jnp.where(is_small, jnp.zeros((), counts.dtype), stirling)


@array_function("nn.local_response_normalization", "nn.lrn")
def local_response_normalization(
    input: TensorLike,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
) -> jax.Array:
    """Returns images, normalized by the sum of squares of nearby channels."""
    found = _floats("local_response_normalization", input)
    if found.ndim != 4:
        raise errors.InvalidArgumentError(
            "local_response_normalization takes arrays of four axes, received the "
            f"shape {list(found.shape)}."
        )
    edges = [(0, 0)] * 3 + [(depth_radius, depth_radius)]
    window = (1, 1, 1, 2 * depth_radius + 1)
    total = jax.lax.reduce_window(
        jnp.square(found), 0.0, jax.lax.add, window, (1, 1, 1, 1), edges
    )
    made: jax.Array = found / (bias + alpha * total) ** beta
    return made


lrn = local_response_normalization


def _floats(name: str, x: TensorLike) -> jax.Array:
    found = tensors.tensor(x)
    kinds.check(name, found.dtype, kinds.FLOAT)
    return found


def _relu(x: jax.Array) -> jax.Array:
    """Returns the elements, zero for negative ones."""
    # JAX's function, whose gradient at 0 is 0, is for floats.
    return (
        jnp.maximum(x, jnp.zeros((), x.dtype))
        if x.dtype.kind == "i"
        else jax.nn.relu(x)
    )


def _relu6(x: jax.Array) -> jax.Array:
    """Returns the elements, from 0 to 6."""
    return jnp.clip(x, 0, 6) if kinds.kind(x.dtype) == "i" else jax.nn.relu6(x)


def _softmax(
    name: str, fn: Callable[..., jax.Array], logits: TensorLike, axis: int | None
) -> jax.Array:
    """Returns a softmax, or its logarithm, along an axis."""
    found = _floats(name, logits)
    along = axis_functions.find_axis(name, -1 if axis is None else axis, found.ndim)
    made: jax.Array = fn(found, axis=along)
    return made


def _logits(
    name: str, labels: TensorLike | None, logits: TensorLike | None
) -> tuple[jax.Array, jax.Array]:
    """Returns labels and logits of one type and shape.

    Raises:
        ValueError: one of them is missing, or their shapes differ.
    """
    if labels is None or logits is None:
        raise ValueError(f"Both labels and logits must be provided in {name}.")
    scores, wanted = tensors.to_one_type(name, logits, labels)
    kinds.check(name, scores.dtype, kinds.FLOAT)
    if scores.shape != wanted.shape:
        raise ValueError(
            "`logits` and `labels` must have the same shape, received "
            f"({scores.shape} vs {wanted.shape}) in {name}."
        )
    return jnp.asarray(wanted), jnp.asarray(scores)


def _noise_shape(wanted: Sizes | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of the draws."""
    if wanted is None:
        return shape
    given = cast("Sequence[int | None]", wanted)
    sizes = [n if w is None else w for w, n in zip(given, shape, strict=False)]
    return tensors.sizes("dropout", "noise_shape", sizes)
