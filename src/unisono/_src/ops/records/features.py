"""What a program asks of a record: features of fixed and of any length."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import numpy as np

from unisono._src.foundation import errors
from unisono._src.foundation.tensor_shape import ShapeLike, TensorShape
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.input.plan import elements
from unisono._src.ops import element_types

__all__ = ["FixedLenFeature", "FixedLenSequenceFeature", "VarLenFeature"]

# The field of the message `Feature` for each type, and the kinds of NumPy's numbers
# that a default value may have.
_FIELDS: dict[np.dtype, tuple[str, str]] = {
    np.dtype(np.int64): ("int64_list", "iu"),
    np.dtype(np.float32): ("float_list", "fiu"),
    np.dtype(object): ("bytes_list", "O"),
}
TYPES = {field: _type for _type, (field, _) in _FIELDS.items()}


@final
@dataclasses.dataclass(frozen=True, slots=True)
class ValueLayout:
    """How to read the values of a feature.

    Attributes:
        dtype: their type.
        shape: the shape of one feature, or of one step of a sequence.
        size: the number of values in that shape.
        default: what stands for a missing feature, or fills up a sequence; None if
            there is no such value.
        field: the field of the message that has the values.
        values: returns the values of a message, none if another field is set.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    size: int
    default: np.ndarray | None
    field: str
    values: Callable[[Any], Sequence[Any]]


def _find_layout(
    shape: Any, dtype: Any, default: object, default_shape: tuple[int, ...] | None
) -> ValueLayout:
    """Returns what `_make_layout` returns, which is made once for equal arguments.

    A program may make its features anew for every record.
    """
    if isinstance(shape, list):
        shape = tuple(shape)
    # Others may have no hash, or be equal and yet differ, as 0.0 and -0.0 do.
    is_plain = default is None or type(default) in (int, str, bytes)
    make = _kept_layout if is_plain and isinstance(shape, tuple) else _make_layout
    return make(shape, dtype, default, default_shape)


def _make_layout(
    shape: Any, dtype: Any, default: object, default_shape: tuple[int, ...] | None
) -> ValueLayout:
    """Returns the layout for the arguments of a feature.

    Args:
        shape: the shape, each size of which is known.
        dtype: the type.
        default: the default value, or None.
        default_shape: the shape of the default value; None for `shape`.

    Raises:
        TypeError: the default value is of another type.
        ValueError: the shape or type is missing, or a size is not known.
        InvalidArgumentError: records have no such type, or the default value has
            another number of elements.
    """
    if shape is None or dtype is None:
        raise ValueError(f"Missing {'shape' if shape is None else 'type'}.")
    # One size alone is a shape in TensorFlow, too.
    whole = isinstance(shape, (int, np.integer))
    sizes = TensorShape([int(shape)] if whole else shape)
    if not sizes.is_fully_defined():
        raise ValueError(
            f"Every size of the shape must be known, received {sizes}. Use "
            "FixedLenSequenceFeature or VarLenFeature for a list of any length."
        )
    found = element_types.as_dtype(dtype)
    if found not in _FIELDS:
        raise errors.InvalidArgumentError(
            f"Records have values of the types int64, float32 and string, received "
            f"{found}. Convert what is read with unisono.cast or unisono.io.decode_raw."
        )
    field, _ = _FIELDS[found]
    known = tuple(int(n) for n in sizes)
    target = known if default_shape is None else default_shape
    filled = None if default is None else _make_default(default, found, target)
    get = operator.attrgetter(f"{field}.value")
    return ValueLayout(found, known, math.prod(known), filled, field, get)


def _make_default(value: object, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    found = elements.as_array(elements.to_array(value))
    if found.dtype.kind not in _FIELDS[dtype][1]:
        raise TypeError(f"Cannot convert the default_value {value!r} to {dtype}.")
    if found.size != math.prod(shape):
        raise errors.InvalidArgumentError(
            f"The default_value {value!r} has {found.size} values; the shape {shape} "
            f"needs {math.prod(shape)}."
        )
    return found.astype(dtype).reshape(shape)


# By the types of the arguments, too: 1 and 1.0 are equal.
_kept_layout = functools.lru_cache(maxsize=1024, typed=True)(_make_layout)


@everyday_name("io.FixedLenFeature")
@final
@dataclasses.dataclass(frozen=True)
class FixedLenFeature:
    """A feature of a record that has a fixed number of values.

    Args:
        shape: the shape of its values; ``[]`` for one value.
        dtype: `int64`, `float32` or `string`.
        default_value: stands for a missing feature, in the same shape; with None a
            missing feature is an error.

    >>> import unisono
    >>> FixedLenFeature([2], unisono.float32, default_value=[0.0, 0.0]).shape
    [2]
    """

    shape: ShapeLike
    dtype: Any
    default_value: Any = None

    def __post_init__(self) -> None:
        _ = self._layout

    @functools.cached_property
    def _layout(self) -> ValueLayout:
        return _find_layout(self.shape, self.dtype, self.default_value, None)


@everyday_name("io.FixedLenSequenceFeature")
@final
@dataclasses.dataclass(frozen=True)
class FixedLenSequenceFeature:
    """A feature that has any number of steps, each with a fixed number of values.

    In a batch all are filled up to the longest one.

    Args:
        shape: the shape of one step; ``[]`` for one value.
        dtype: `int64`, `float32` or `string`.
        allow_missing: whether a missing feature is one without steps;
            `parse_example` and `parse_single_example` need True.
        default_value: the one value that fills up; None for 0 or empty text.

    >>> import unisono
    >>> FixedLenSequenceFeature([], unisono.int64, True, default_value=-1).default_value
    -1
    """

    shape: ShapeLike
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None

    def __post_init__(self) -> None:
        _ = self._layout

    @functools.cached_property
    def _layout(self) -> ValueLayout:
        return _find_layout(self.shape, self.dtype, self.default_value, ())


@everyday_name(
    "io.VarLenFeature",
    difference="It gives a dense array, in a batch filled up with 0 or empty text to "
    "the longest list. unisono.sparse.to_dense returns such an array. To tell filling "
    "from data use FixedLenSequenceFeature with a default_value.",
)
@final
@dataclasses.dataclass(frozen=True)
class VarLenFeature:
    """A feature that is a list of any length; a missing one is an empty list.

    It gives a dense array, where TensorFlow gives a sparse tensor. In a batch all lists
    are filled up to the longest with 0 or empty text. To tell these from data, use
    ``FixedLenSequenceFeature([], dtype, allow_missing=True, default_value=-1)``.

    Args:
        dtype: `int64`, `float32` or `string`.

    >>> import unisono
    >>> VarLenFeature(unisono.int64).dtype
    dtype('int64')
    """

    dtype: Any

    def __post_init__(self) -> None:
        _ = self._layout

    @functools.cached_property
    def _layout(self) -> ValueLayout:
        return _find_layout((), self.dtype, None, ())


AnyFeature: TypeAlias = FixedLenFeature | FixedLenSequenceFeature | VarLenFeature


def layout_of(feature: AnyFeature) -> ValueLayout:
    """Returns how to read a feature."""
    return feature._layout  # noqa: SLF001 - The classes of this module.
