"""Shows the values of replicas in the words of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from unisono._src.foundation import printable
from unisono._src.values import collectives, jax_tapes


def describe(x: Any) -> str:
    """Returns `x` as TensorFlow's `repr` of a distributed value shows it."""
    if jax_tapes.is_traced(x):
        return f"<tf.Tensor: shape={x.shape}, dtype={x.dtype}, traced>"
    if isinstance(x, jax.Array) and collectives.is_key(x):
        return f"<tf.Tensor: shape={x.shape}, dtype={x.dtype}, {x}>"
    if isinstance(x, jax.Array):
        shown = x.item() if x.ndim == 0 else np.asarray(x)
        return f"<tf.Tensor: shape={x.shape}, dtype={x.dtype}, numpy={shown!r}>"
    return repr(x)


def describe_short(x: object) -> str:
    """Returns `x` as TensorFlow's `str` of a distributed value shows it."""
    if (
        isinstance(x, jax.Array)
        and not jax_tapes.is_traced(x)
        and not collectives.is_key(x)
    ):
        return f"tf.Tensor({np.asarray(x)}, shape={x.shape}, dtype={x.dtype})"
    if isinstance(x, str):
        return printable.escape(x)
    return str(x) if not jax_tapes.is_traced(x) else describe(x)


def render(name: str, parts: Sequence[Any], one: Callable[[Any], str]) -> str:
    """Returns a text with a line for each replica, as TensorFlow shows such values.

    >>> print(render("PerReplica", ["a", "b"], repr))
    PerReplica:{
      0: 'a',
      1: 'b'
    }
    """
    lines = ",\n".join(f"  {i}: {one(p)}" for i, p in enumerate(parts))
    return f"{name}:{{\n{lines}\n}}"
