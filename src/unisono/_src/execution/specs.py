"""`TensorSpec`: shape and element type of an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from unisono._src.foundation.public_names import publish

# What names the type of text; its arrays hold `bytes` objects.
_TEXT = (str, bytes, "string")


class TypeSpec:
    """Base of the descriptions of values."""

    def describes(self, shape: Sequence[int], dtype: DTypeLike) -> bool:
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
        dtype: DTypeLike = jnp.float32,
        name: str | None = None,
    ) -> None:
        self.shape = None if shape is None else tuple(shape)
        self.dtype = _element_type(dtype)
        self.name = name

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> TensorSpec:
        """The exact description of an array.

        >>> TensorSpec.from_tensor(np.zeros((2, 3)))
        TensorSpec(shape=(2, 3), dtype=float64, name=None)

        Raises:
            ValueError: it is none.
        """
        if not hasattr(tensor, "shape") or not hasattr(tensor, "dtype"):
            raise ValueError(
                f"`tensor` must be an array, received {type(tensor).__name__}."
            )
        return cls(tensor.shape, tensor.dtype, name)

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> TensorSpec:
        """A copy, under another name if one is given.

        Raises:
            TypeError: it is no description of an array.
        """
        if not isinstance(spec, TensorSpec):
            raise TypeError(
                f"`spec` must be a TensorSpec, received {type(spec).__name__}."
            )
        return cls(spec.shape, spec.dtype, name or spec.name)

    def is_subtype_of(self, other: TypeSpec) -> bool:
        """Whether every array that this describes is described by `other`, too.

        >>> TensorSpec((2,)).is_subtype_of(TensorSpec((None,)))
        True
        """
        if not isinstance(other, TensorSpec) or self.dtype != other.dtype:
            return False
        if self.name and self.name != other.name:
            return False
        if other.shape is None or self.shape is None:
            return other.shape is None
        return _fits(other.shape, self.shape)

    def is_compatible_with(self, value: Any) -> bool:
        """Whether an array has this shape and element type, or a spec may mean one.

        Types of arrays are compared as JAX holds them: int64 is int32 unless 64-bit
        types are enabled.
        """
        if isinstance(value, TypeSpec):
            return isinstance(value, TensorSpec) and self._may_be(value)
        is_text = self.dtype.kind == "O"
        kind = np.asarray(value).dtype if is_text else jnp.result_type(value)
        return self.describes(np.shape(value), kind)

    def _may_be(self, other: TensorSpec) -> bool:
        """Whether some array fits both."""
        if self.dtype != other.dtype or self.shape is None or other.shape is None:
            return self.dtype == other.dtype
        return len(self.shape) == len(other.shape) and all(
            None in (a, b) or a == b
            for a, b in zip(self.shape, other.shape, strict=True)
        )

    def describes(self, shape: Sequence[int], dtype: DTypeLike) -> bool:
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


@final
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


def _element_type(given: Any) -> np.dtype:
    """What names a type, as NumPy's; text is held as objects.

    Raises:
        TypeError: it names none.
    """
    if given is None:
        raise TypeError("dtype must be a type of elements, received None.")
    if given is float:
        return np.dtype(np.float32)
    found = np.dtype(object if given in _TEXT else given)
    return np.dtype(object) if found.kind in "SU" else found


def _fits(wanted: Sequence[int | None], shape: Sequence[int | None]) -> bool:
    return len(wanted) == len(shape) and all(
        w is None or w == s for w, s in zip(wanted, shape, strict=True)
    )


publish("unisono", TensorSpec, TypeSpec)
publish("unisono.data", DatasetSpec)
