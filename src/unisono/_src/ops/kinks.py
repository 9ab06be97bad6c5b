"""Functions whose gradient is TensorFlow's where JAX has another one.

JAX halves the gradient of equal operands of `maximum`, and has 1 for `abs` at 0. In
TensorFlow the first operand gets all of it, and `abs` has 0 there, which counts where
many differences are exactly 0, as those of padding. For the exponent of a negative
number JAX has NaN and TensorFlow 0.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from unisono._src.foundation import ambient

_abs = jax.custom_jvp(jnp.abs)
_maximum = jax.custom_jvp(jnp.maximum)
_minimum = jax.custom_jvp(jnp.minimum)
_sign = jax.custom_jvp(jnp.sign)
_power = jax.custom_jvp(jnp.power)


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


@_sign.defjvp
def _sign_tangent(given: Any, tangents: Any) -> Any:
    # Zero, but connected: TensorFlow's gradient is an array of zeros and not None.
    (x,), (t,) = given, tangents
    return jnp.sign(x), jnp.where(jnp.zeros_like(x, bool), t, jnp.zeros_like(t))


def _power_tangent(given: Any, tangents: Any) -> Any:
    (x, y), (of_x, of_y) = given, tangents
    found = jnp.power(x, y)
    tangent = jnp.zeros_like(found)
    # Most exponents are constants, for which nothing is computed.
    if not isinstance(of_x, SymbolicZero):
        tangent += of_x * y * jnp.power(x, y - 1)
    if not isinstance(of_y, SymbolicZero):
        tangent += of_y * found * jnp.log(jnp.where(x > 0, x, jnp.ones_like(x)))
    return found, tangent


_power.defjvp(_power_tangent, symbolic_zeros=True)


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


def sign(x: jax.Array) -> jax.Array:
    """Returns -1, 0 or 1 for the sign of each element; the gradient is 0.

    >>> float(jax.grad(sign)(2.0))
    0.0
    """
    found: jax.Array = _sign(x) if _has_gradient(x) else jnp.sign(x)
    return found


def power(x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns powers; the gradient of the exponent of a negative number is 0.

    >>> float(jax.grad(power, 1)(-2.0, 2.0))
    0.0
    """
    found: jax.Array = _power(x, y) if _has_gradient(x, y) else jnp.power(x, y)
    return found
