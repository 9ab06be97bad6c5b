"""What a conformance case calls `tf`: unisono, and a few operations of jax.numpy."""

import jax
import jax.numpy as jnp

import unisono


def _constant(value, dtype=None, shape=None):
    return jnp.asarray(value, dtype) if shape is None else jnp.full(shape, value, dtype)


_OPERATIONS = {
    "Tensor": jax.Array,
    "bool": jnp.bool_,
    "cast": lambda x, dtype: jnp.asarray(x).astype(dtype),
    "concat": lambda parts, axis: jnp.concatenate(parts, axis),
    "constant": _constant,
    "float16": jnp.float16,
    "float32": jnp.float32,
    "float64": jnp.float32,
    "identity": lambda x: jnp.asarray(x),
    "int32": jnp.int32,
    "int64": jnp.int32,
    "ones": jnp.ones,
    "reduce_mean": jnp.mean,
    "reduce_sum": jnp.sum,
    "shape": jnp.shape,
    "stack": jnp.stack,
    "zeros": jnp.zeros,
}


class TensorFlow:
    """Unisono first; tensor operations where it has no such name."""

    def __getattr__(self, name):
        if hasattr(unisono, name):
            return getattr(unisono, name)
        try:
            return _OPERATIONS[name]
        except KeyError:
            raise AttributeError(f"unisono has no {name!r}") from None
