"""`TensorSpec`: shape and element type of an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# What names the type of text; its arrays hold `bytes` objects.
_TEXT = (str, bytes, "string")


class TypeSpec:
    """Base of the descriptions of values."""

    def describes(self, shape: Sequence[int], dtype: Any) -> bool:
        """Whether an array of this shape and element type is meant."""
        return False


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
        self.dtype = np.dtype(object if dtype in _TEXT else dtype)
        self.name = name

    def is_compatible_with(self, value: Any) -> bool:
        """Whether an array has this shape and element type.

        Types are compared as JAX holds them: int64 is int32 unless 64-bit types are
        enabled.
        """
        is_text = self.dtype.kind == "O"
        kind = np.asarray(value).dtype if is_text else jnp.result_type(value)
        return self.describes(np.shape(value), kind)

    def describes(self, shape: Sequence[int], dtype: Any) -> bool:
        """Whether an array of this shape and element type is meant."""
        if self.dtype.kind == "O":
            return np.dtype(dtype).kind == "O" and self.fits(shape)
        same = dtype == jax.dtypes.canonicalize_dtype(self.dtype)
        return (same or dtype == self.dtype) and self.fits(shape)

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether an array of this shape is meant."""
        return self.shape is None or _fits(self.shape, shape)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TensorSpec)
            and self.shape == other.shape
            and self.dtype == other.dtype
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        kind = "string" if self.dtype.kind == "O" else self.dtype
        return f"TensorSpec(shape={self.shape}, dtype={kind}, name={self.name!r})"


class DatasetSpec(TypeSpec):
    """Describes a nested dataset, such as a window."""

    def __init__(self, element_spec: Any, dataset_shape: Sequence[int] = ()) -> None:
        self.element_spec = element_spec
        self.shape = tuple(dataset_shape)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DatasetSpec) and self.element_spec == other.element_spec
        )

    def __hash__(self) -> int:
        return hash((type(self), self.shape))

    def __repr__(self) -> str:
        return f"DatasetSpec({self.element_spec!r}, {self.shape})"


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
