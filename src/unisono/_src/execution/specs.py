"""Descriptions of values: `TensorSpec` for arrays, and others built on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from unisono._src.foundation.tensor_shape import ShapeLike, TensorShape

# Names of the element type of text, whose arrays hold `bytes` objects.
_TEXT = (str, bytes, "string")


class TypeSpec:
    """Base class of the descriptions of values.

    >>> issubclass(TensorSpec, TypeSpec), issubclass(DatasetSpec, TypeSpec)
    (True, True)
    """

    def describes(self, shape: Sequence[int], dtype: DTypeLike) -> bool:
        """Returns whether this describes arrays of the given shape and element type.

        Args:
            shape: the sizes of an array.
            dtype: its element type.

        Returns:
            False for specs that do not describe arrays.

        >>> DatasetSpec(TensorSpec((2,))).describes((2,), jnp.float32)
        False
        """
        return False


class TensorSpec(TypeSpec):
    """Describes the shape and element type of arrays.

    Args:
        shape: the sizes; None for an axis of any size, or None for any shape.
        dtype: an element type of NumPy or JAX, or a Python type or a name; `float` is
            float32, and `str`, `bytes` and ``"string"`` are text.
        name: any name, or None.

    Raises:
        TypeError: `dtype` is not an element type.

    >>> spec = TensorSpec((None, 2), "float32")
    >>> spec.is_compatible_with(jnp.zeros((5, 2)))
    True
    >>> spec.is_compatible_with(jnp.zeros((5, 3)))
    False
    """

    def __init__(
        self,
        shape: ShapeLike,
        dtype: DTypeLike = jnp.float32,
        name: str | None = None,
    ) -> None:
        self.shape = TensorShape(shape)
        self.dtype = _element_type(dtype)
        self.name = name

    @classmethod
    def from_tensor(cls, tensor: object, name: str | None = None) -> TensorSpec:
        """Returns the spec that has exactly the shape and element type of an array.

        Args:
            tensor: the array.
            name: the name of the spec, or None.

        Raises:
            ValueError: `tensor` is not an array.

        >>> TensorSpec.from_tensor(np.zeros((2, 3)))
        TensorSpec(shape=(2, 3), dtype=float64, name=None)
        """
        if not hasattr(tensor, "shape") or not hasattr(tensor, "dtype"):
            raise ValueError(
                f"`tensor` must be an array, received {type(tensor).__name__}. Write "
                "TensorSpec.from_tensor(numpy.asarray(value)) for other values."
            )
        return cls(tensor.shape, tensor.dtype, name)

    @classmethod
    def from_spec(cls, spec: object, name: str | None = None) -> TensorSpec:
        """Returns a copy of a spec, with another name if one is given.

        Args:
            spec: the spec to copy.
            name: the name of the copy; None keeps that of `spec`.

        Raises:
            TypeError: `spec` is not a `TensorSpec`.

        >>> TensorSpec.from_spec(TensorSpec((2,), "int32", "a"), name="b")
        TensorSpec(shape=(2,), dtype=int32, name='b')
        """
        if not isinstance(spec, TensorSpec):
            raise TypeError(
                f"`spec` must be a TensorSpec, received {type(spec).__name__}."
            )
        return cls(spec.shape, spec.dtype, name or spec.name)

    def is_subtype_of(self, other: TypeSpec) -> bool:
        """Returns whether `other` describes every array that this describes.

        Args:
            other: another spec.

        >>> two, any_size = TensorSpec((2,)), TensorSpec((None,))
        >>> two.is_subtype_of(any_size), any_size.is_subtype_of(two)
        (True, False)
        """
        if not isinstance(other, TensorSpec) or self.dtype != other.dtype:
            return False
        if self.name and self.name != other.name:
            return False
        return self.shape.is_subtype_of(other.shape)

    def is_compatible_with(self, value: Any) -> bool:
        """Returns whether an array, or some array of another spec, fits this spec.

        Args:
            value: an array, or a spec. The element types are compared as JAX stores
                them: int64 counts as int32 unless 64-bit types are enabled.

        >>> spec = TensorSpec((None, 2))
        >>> spec.is_compatible_with(np.zeros((5, 2), np.float32))
        True
        >>> spec.is_compatible_with(TensorSpec((3, None)))
        True
        >>> spec.is_compatible_with(TensorSpec((3, 4)))
        False
        """
        if isinstance(value, TypeSpec):
            return isinstance(value, TensorSpec) and self._overlaps(value)
        is_text = self.dtype.kind == "O"
        kind = np.asarray(value).dtype if is_text else jnp.result_type(value)
        return self.describes(np.shape(value), kind)

    def _overlaps(self, other: TensorSpec) -> bool:
        """Whether some array could fit both specs."""
        is_same_type = bool(self.dtype == other.dtype)
        return is_same_type and self.shape.is_compatible_with(other.shape)

    def describes(self, shape: Sequence[int], dtype: DTypeLike) -> bool:
        """Returns whether this describes arrays of the given shape and element type.

        Args:
            shape: the sizes of an array.
            dtype: its element type.

        >>> spec = TensorSpec((None, 2), "int32")
        >>> spec.describes((7, 2), np.int32), spec.describes((7, 2), np.float32)
        (True, False)
        """
        if self.dtype.kind == "O":
            return np.dtype(dtype).kind == "O" and self.fits(shape)
        # JAX makes int64 an int32 unless 64-bit types are enabled; both are right.
        same = dtype == jax.dtypes.canonicalize_dtype(self.dtype)
        return (same or dtype == self.dtype) and self.fits(shape)

    def fits(self, shape: Sequence[int]) -> bool:
        """Returns whether this describes arrays of a shape, of any element type.

        Args:
            shape: the sizes of an array.

        >>> TensorSpec((None, 2)).fits((7, 2)), TensorSpec((None, 2)).fits((7,))
        (True, False)
        """
        if self.shape.rank is None:
            return True
        return len(self.shape) == len(shape) and all(
            w is None or w == s for w, s in zip(self.shape, shape, strict=True)
        )

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
    """Describes a dataset that is an element of another dataset, such as a window.

    Args:
        element_spec: the description of the elements of the inner dataset.
        dataset_shape: the shape of an array of such datasets; () for a single one.

    >>> import unisono
    >>> windows = unisono.data.Dataset.range(4).window(2)
    >>> windows.element_spec.element_spec == unisono.TensorSpec((), "int64")
    True
    """

    def __init__(self, element_spec: object, dataset_shape: Sequence[int] = ()) -> None:
        self.element_spec: Any = element_spec
        self.shape = TensorShape(dataset_shape)

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
    """Describes a `PerReplica` value, with one spec for each replica.

    Args:
        *specs: the description of each replica's part, in order.

    >>> PerReplicaSpec(TensorSpec((2,))) == PerReplicaSpec(TensorSpec((2,)))
    True
    """

    def __init__(self, *specs: TypeSpec) -> None:
        self.specs = specs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PerReplicaSpec) and self.specs == other.specs

    def __hash__(self) -> int:
        return hash(self.specs)

    def __repr__(self) -> str:
        return f"PerReplicaSpec({', '.join(map(repr, self.specs))})"


def _element_type(given: DTypeLike | str | type[str] | type[bytes] | None) -> np.dtype:
    """Return the NumPy type that `given` names; for text, the type of objects.

    Raises:
        TypeError: `given` names no type.
    """
    if given is None:
        raise TypeError("dtype must be an element type such as float32, received None.")
    # TensorFlow's `float` is float32; NumPy's would be float64.
    if given is float:
        return np.dtype(np.float32)
    found = np.dtype(object if given in _TEXT else given)
    return np.dtype(object) if found.kind in "SU" else found
