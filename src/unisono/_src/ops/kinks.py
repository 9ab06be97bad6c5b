"""Functions whose gradient at a kink is TensorFlow's.

JAX halves the gradient of equal operands of `maximum`, and has 1 for `abs` at 0. In
TensorFlow the first operand gets all of it, and `abs` has 0 there, which counts where
many differences are exactly 0, as those of padding.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.foundation import ambient

_abs = jax.custom_jvp(jnp.abs)
_maximum = jax.custom_jvp(jnp.maximum)
_minimum = jax.custom_jvp(jnp.minimum)


@_abs.defjvp
def _abs_tangent(given: Any, tangents: Any) -> Any:
    (x,), (t,) = given, tangents
    return jnp.abs(x), t * jnp.sign(x)


@_maximum.defjvp
def _maximum_tangent(given: Any, tangents: Any) -> Any:
    return jnp.maximum(*given), jnp.where(given[0] >= given[1], *tangents)


@_minimum.defjvp
def _minimum_tangent(given: Any, tangents: Any) -> Any:
    return jnp.minimum(*given), jnp.where(given[0] <= given[1], *tangents)


def _has_gradient(*values: Any) -> bool:
    """Whether a gradient may be asked for: eager code without a tape needs none."""
    is_followed = ambient.current().tape is not None or any(
        isinstance(x, jax.core.Tracer) for x in values
    )
    types = map(jnp.result_type, values)
    return is_followed and all(jnp.issubdtype(t, jnp.floating) for t in types)


def abs(x: jax.Array) -> jax.Array:
    """Returns absolute values; the gradient at 0 is 0.

    >>> float(jax.grad(abs)(0.0))
    0.0
    """
    found: jax.Array = _abs(x) if _has_gradient(x) else jnp.abs(x)
    return found


def maximum(x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the larger element of each pair; of equal ones `x` gets the gradient.

    >>> float(jax.grad(maximum)(1.0, 1.0))
    1.0
    """
    found: jax.Array = _maximum(x, y) if _has_gradient(x, y) else jnp.maximum(x, y)
    return found


def minimum(x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the smaller element of each pair; of equal ones `x` gets the gradient.

    >>> float(jax.grad(minimum)(1.0, 1.0))
    1.0
    """
    found: jax.Array = _minimum(x, y) if _has_gradient(x, y) else jnp.minimum(x, y)
    return found
