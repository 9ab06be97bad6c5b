"""Dropout: elements set to zero at random."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.ops import kinds, random_draws, tensors


def dropout(x: Any, rate: Any, noise_shape: Any, seed: Any) -> jax.Array:
    """Returns an array with a share of elements set to zero, and the rest scaled up.

    Args:
        x: an array of floats.
        rate: the share, from 0 to below 1.
        noise_shape: the shape of the draws, which are broadcast; None for that of `x`,
            and None for a size is the size of `x`.
        seed: a seed for this operation; see `unisono.random.set_seed`.

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


def _noise_shape(wanted: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of the draws."""
    if wanted is None:
        return shape
    sizes = [n if w is None else w for w, n in zip(wanted, shape, strict=False)]
    return tensors.sizes("dropout", "noise_shape", sizes)
