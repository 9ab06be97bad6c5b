"""`TensorSpec`: shape and element type of an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np


class TypeSpec:
    """Base of the descriptions of values."""


class TensorSpec(TypeSpec):
    """Describes an array; None in the shape, or as the shape, matches any size.

    >>> TensorSpec((None, 2), "float32").is_compatible_with(jnp.zeros((5, 2)))
    True
    """

    def __init__(
        self,
        shape: Sequence[int | None] | None,
        dtype: Any = jnp.float32,
        name: str | None = None,
    ) -> None:
        self.shape = None if shape is None else tuple(shape)
        self.dtype = np.dtype(dtype)
        self.name = name

    def is_compatible_with(self, value: Any) -> bool:
        """Whether an array has this shape and element type."""
        if jnp.result_type(value) != self.dtype:
            return False
        return self.shape is None or _fits(self.shape, jnp.shape(value))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TensorSpec)
            and self.shape == other.shape
            and self.dtype == other.dtype
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype}, name={self.name!r})"


class PerReplicaSpec(TypeSpec):
    """Describes a `PerReplica`: one spec per replica."""

    def __init__(self, *specs: TypeSpec) -> None:
        self.specs = specs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PerReplicaSpec) and self.specs == other.specs

    def __hash__(self) -> int:
        return hash(self.specs)

    def __repr__(self) -> str:
        return f"PerReplicaSpec({', '.join(map(repr, self.specs))})"


def _fits(wanted: Sequence[int | None], shape: Sequence[int]) -> bool:
    return len(wanted) == len(shape) and all(
        w is None or w == s for w, s in zip(wanted, shape, strict=True)
    )
