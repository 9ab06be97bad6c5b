"""Activations, normalizations and losses of neural networks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors
from unisono._src.ops import elementwise, indexing, kinds, reductions, shaping, tensors
from unisono._src.training import nn
from unisono._src.values import jax_tapes


def _floats(name: str, x: Any) -> jax.Array:
    found = tensors.tensor(x)
    kinds.check(name, found.dtype, kinds.FLOAT)
    return found


def relu(x: jax.Array) -> jax.Array:
    """Returns the elements, zero for negative ones."""
    # JAX's function, whose gradient at 0 is 0, is for floats.
    return (
        jnp.maximum(x, jnp.zeros((), x.dtype))
        if x.dtype.kind == "i"
        else jax.nn.relu(x)
    )


def relu6(x: jax.Array) -> jax.Array:
    """Returns the elements, from 0 to 6."""
    return jnp.clip(x, 0, 6) if kinds.kind(x.dtype) == "i" else jax.nn.relu6(x)


def leaky_relu(features: Any, alpha: Any) -> jax.Array:
    """Returns the elements, negative ones times `alpha`."""
    found = tensors.tensor(features)
    kinds.check("leaky_relu", found.dtype, kinds.REAL)
    if kinds.kind(found.dtype) == "i":
        found = found.astype(jnp.float32)
    factor = jnp.asarray(tensors.unwrap(alpha), found.dtype)
    return jnp.where(found > 0, found, found * factor)


def crelu(features: Any, axis: Any) -> jax.Array:
    """Returns the positive parts of `x` and of `-x`, joined along an axis."""
    found = tensors.tensor(features)
    kinds.check("crelu", found.dtype, kinds.SIGNED)
    along = shaping.find_axis("crelu", axis, found.ndim)
    return relu(jnp.concatenate([found, -found], along))


def silu(features: Any, beta: Any) -> jax.Array:
    """Returns x * sigmoid(beta * x)."""
    found = _floats("silu", features)
    factor = jnp.asarray(tensors.unwrap(beta), found.dtype)
    return found * jax.nn.sigmoid(found * factor)


def gelu(features: Any, approximate: Any) -> jax.Array:
    """Returns x times the share of the normal distribution below x.

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


def softmax(name: str, fn: Any, logits: Any, axis: Any) -> jax.Array:
    """Returns a softmax, or its logarithm, along an axis."""
    found = _floats(name, logits)
    along = shaping.find_axis(name, -1 if axis is None else axis, found.ndim)
    made: jax.Array = fn(found, axis=along)
    return made


def l2_normalize(x: Any, axis: Any, epsilon: Any, dim: Any) -> jax.Array:
    """Returns arrays divided by their norm over axes."""
    found = tensors.tensor(x)
    kinds.check("l2_normalize", found.dtype, kinds.INEXACT)
    if dim is not None and axis is not None:
        raise ValueError("Cannot specify both 'axis' and 'dim' in l2_normalize.")
    axes = reductions.find_axes(
        "l2_normalize", dim if axis is None else axis, found.ndim
    )
    total = jnp.sum(jnp.square(jnp.abs(found)), axes, keepdims=True)
    limit = jnp.asarray(epsilon, total.dtype)
    return found * jax.lax.rsqrt(jnp.maximum(total, limit)).astype(found.dtype)


def zero_fraction(value: Any) -> jax.Array:
    """Returns the share of zeros among the elements."""
    found = tensors.tensor(value)
    count = jnp.sum(found == 0, dtype=jnp.int32)
    return count.astype(jnp.float32) / jnp.asarray(found.size, jnp.float32)


def l2_loss(t: Any) -> jax.Array:
    """Returns half of the sum of the squares."""
    found = _floats("l2_loss", t)
    return jnp.sum(jnp.square(found)) / 2


def bias_add(value: Any, bias: Any, data_format: Any) -> jax.Array:
    """Returns an array plus a vector that has one element for each channel.

    Raises:
        ValueError: the format is unknown.
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


def moments(
    x: Any, axes: Any, shift: Any, keepdims: Any
) -> tuple[jax.Array, jax.Array]:
    """Returns mean and variance over axes."""
    found = tensors.tensor(x)
    kinds.check("moments", found.dtype, kinds.NUMBERS)
    along = reductions.find_axes("moments", axes, found.ndim)
    # TensorFlow sums half precision in float32.
    wide = found.astype(jnp.float32) if found.dtype == jnp.float16 else found
    mean = reductions.mean(wide, along, True)
    # The gradient of the variance by the mean is zero, so it is left out.
    distance = jnp.square(wide - jax.lax.stop_gradient(mean))
    variance = reductions.mean(distance, along, bool(keepdims))
    mean = mean if keepdims else jnp.squeeze(mean, along)
    return mean.astype(found.dtype), variance.astype(found.dtype)


def batch_normalization(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, epsilon: Any
) -> jax.Array:
    """Returns an array that is normalized by given moments, then scaled and shifted."""
    found, middle, spread = tensors.to_one_type(
        "batch_normalization", x, mean, variance
    )
    kinds.check("batch_normalization", found.dtype, kinds.FLOAT)
    factor = jax.lax.rsqrt(spread + jnp.asarray(epsilon, found.dtype))
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


def embedding_lookup(params: Any, ids: Any, max_norm: Any) -> jax.Array:
    """Returns rows of a table, which may be given in parts, by their numbers.

    Raises:
        ValueError: there are no parts.
    """
    if nn.has_rows_elsewhere(params):
        return nn.embedding_lookup(params, ids, max_norm)
    parts = params if isinstance(params, (list, tuple)) else [params]
    if not parts:
        raise ValueError("Must specify non-empty `params` in embedding_lookup.")
    table = tensors.tensor(parts[0]) if len(parts) == 1 else shaping.concat(parts, 0)
    rows = indexing.gather(table, ids, 0, 0)
    if max_norm is None:
        return rows
    axes = tuple(range(jnp.ndim(tensors.tensor(ids)), rows.ndim))
    return elementwise.clip_by_norm(rows, max_norm, axes)


def _logits(name: str, labels: Any, logits: Any) -> tuple[jax.Array, jax.Array]:
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


def softmax_cross_entropy(labels: Any, logits: Any, axis: Any) -> jax.Array:
    """Returns the cross entropy between probabilities and a softmax."""
    name = "softmax_cross_entropy_with_logits"
    scores = tensors.tensor(logits)
    wanted = tensors.tensor(labels)
    kinds.check(name, scores.dtype, kinds.FLOAT)
    kinds.check(name, wanted.dtype, kinds.REAL)
    wanted = wanted.astype(scores.dtype)
    elementwise.check_shapes(name, wanted, scores)
    along = shaping.find_axis(name, axis, scores.ndim)
    return -jnp.sum(wanted * jax.nn.log_softmax(scores, along), along)


def sparse_softmax_cross_entropy(labels: Any, logits: Any) -> jax.Array:
    """Returns the cross entropy between class numbers and a softmax.

    Raises:
        InvalidArgumentError: eagerly, a number is none of a class.
        ValueError: the shapes do not fit.
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
        indexing.check_bounds(name, classes, count)
    spread = jax.nn.log_softmax(scores, -1)
    own = jnp.take_along_axis(spread, classes[..., None], -1, mode="fill")
    # On accelerators TensorFlow gives NaN for the number of no class.
    is_class = (classes >= 0) & (classes < count)
    return jnp.where(is_class, -own[..., 0], jnp.nan)


def sigmoid_cross_entropy(labels: Any, logits: Any) -> jax.Array:
    """Returns the cross entropy between probabilities and sigmoids."""
    wanted, scores = _logits("sigmoid_cross_entropy_with_logits", labels, logits)
    # TensorFlow's form, in which no exponential can overflow.
    return jax.nn.relu(scores) - scores * wanted + jnp.log1p(jnp.exp(-jnp.abs(scores)))


def weighted_cross_entropy(labels: Any, logits: Any, pos_weight: Any) -> jax.Array:
    """Returns the cross entropy; positive labels count with a weight."""
    name = "weighted_cross_entropy_with_logits"
    wanted, scores = _logits(name, labels, logits)
    _, factor = tensors.to_one_type(name, scores, pos_weight)
    weight = 1 + (factor - 1) * wanted
    # log(1 + exp(-scores)), in a form that cannot overflow.
    rest = jnp.log1p(jnp.exp(-jnp.abs(scores))) + jax.nn.relu(-scores)
    return jnp.add((1 - wanted) * scores, weight * rest)


def log_poisson_loss(targets: Any, log_input: Any, is_full: Any) -> jax.Array:
    """Returns the Poisson loss of counts for rates that are given as logarithms."""
    scores, counts = tensors.to_one_type("log_poisson_loss", log_input, targets)
    kinds.check("log_poisson_loss", scores.dtype, kinds.FLOAT)
    if scores.shape != counts.shape:
        raise ValueError(
            "`log_input` and `targets` must have the same shape, received "
            f"({scores.shape} vs {counts.shape})."
        )
    loss: jax.Array = jnp.exp(scores) - scores * counts
    if not is_full:
        return loss
    # Stirling's formula for the logarithm of the factorial; of 0 and 1 it is 0.
    stirling = counts * jnp.log(counts) - counts + 0.5 * jnp.log(2 * np.pi * counts)
    is_small = (counts >= 0) & (counts <= 1)
    return loss + jnp.where(is_small, jnp.zeros((), counts.dtype), stirling)


def local_response_normalization(
    x: Any, radius: Any, bias: Any, alpha: Any, beta: Any
) -> jax.Array:
    """Returns images divided by the squares of neighbouring channels."""
    found = _floats("local_response_normalization", x)
    if found.ndim != 4:
        raise errors.InvalidArgumentError(
            "local_response_normalization takes arrays of four axes, received the "
            f"shape {list(found.shape)}."
        )
    edges = [(0, 0)] * 3 + [(radius, radius)]
    window = (1, 1, 1, 2 * radius + 1)
    total = jax.lax.reduce_window(
        jnp.square(found), 0.0, jax.lax.add, window, (1, 1, 1, 1), edges
    )
    made: jax.Array = found / (bias + alpha * total) ** beta
    return made
