"""Features, which a program asks of a record: declaring and reading them."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias, final

import numpy as np

from unisono._src.foundation import errors
from unisono._src.foundation.tensor_shape import ShapeLike, TensorShape
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.input.plan import elements
from unisono._src.ops import element_types

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "VarLenFeature",
]


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
        default_value: the value of a missing feature, in the same shape. If it is
            None, a missing feature raises an error.

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

    In a batch, shorter features are padded to the length of the longest one.

    Args:
        shape: the shape of one step; ``[]`` for one value.
        dtype: `int64`, `float32` or `string`.
        allow_missing: whether a missing feature counts as one without steps. It must be
            True for `parse_example` and `parse_single_example`.
        default_value: the value for padding, a scalar; None for 0 or empty strings.

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
    difference=(
        "It gives a dense array; in a batch, shorter lists are padded with 0 or empty "
        "text. unisono.sparse.to_dense returns such an array unchanged. To tell "
        "padding from data, use FixedLenSequenceFeature with a default_value."
    ),
)
@final
@dataclasses.dataclass(frozen=True)
class VarLenFeature:
    """A feature that is a list of any length; a missing one is an empty list.

    The result is a dense array, not a sparse tensor as in TensorFlow. In a batch,
    shorter lists are padded with 0 or empty strings to the length of the longest one.
    To distinguish padding from data, use
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


# Filling up may make a batch this many times larger than its data, or any batch of
# fewer values than this. One damaged record could otherwise fill the memory.
_MOST_FILLING = 64
_SMALL_BATCH = 1 << 28
_FIRST = operator.itemgetter(0)


# Where a feature stands, for messages: the function that was called, the name of the
# feature, the number of the record in its batch, the names that the program has given
# to the records, and the number of the step in a sequence. A plain tuple: one is made
# for every feature of every record.
Place: TypeAlias = tuple[str, str, int | None, Sequence[Any] | None, int | None]


def _tell(place: Place) -> str:
    """Returns a place in words."""
    function, key, index, names, step = place
    record = "" if index is None else f", record {index} of the batch"
    if names is not None:
        record += f" ({names[index or 0]!r})"
    feature = f": feature {key!r}" if key else ""
    return f"{function}{record}{feature}{'' if step is None else f', step {step}'}"


def parse(message: Any, record: bytes, place: Place) -> Any:
    """Returns the message that a record holds.

    Raises:
        InvalidArgumentError: the record holds no such message.
    """
    from google.protobuf.message import DecodeError

    try:
        return message.FromString(record)
    except (DecodeError, UnicodeDecodeError) as e:
        raise errors.InvalidArgumentError(
            f"{_tell(place)}: Could not parse {message.__name__} input: the record of "
            f"{len(record)} bytes is damaged, or is no {message.__name__} ({e})."
        ) from e


def parse_all(
    message: Any, records: Iterable[bytes], called: str, names: Sequence[Any] | None
) -> list[Any]:
    """Returns the messages that records hold.

    Args:
        message: the class of the messages.
        records: the records.
        called: the function that was called.
        names: the names that the program has given to the records.

    Raises:
        InvalidArgumentError: a record holds no such message.
    """
    from google.protobuf.message import DecodeError

    try:
        return list(map(message.FromString, records))
    except (DecodeError, UnicodeDecodeError):
        # Once more, one after the other, for the number of the damaged one.
        return [
            parse(message, record, (called, "", index, names, None))
            for index, record in enumerate(records)
        ]


def refuse(layout: ValueLayout, feature: Any, place: Place) -> NoReturn:
    """Raises the error for a feature that has no such values."""
    field = None if feature is None else feature.WhichOneof("kind")
    wanted = _name(layout.dtype)
    if field is None:
        raise errors.InvalidArgumentError(
            f"{_tell(place)} (data type: {wanted}) is required but could not be found. "
            "Give it a default_value if records may lack it."
        )
    found = _name(TYPES[field])
    if field != layout.field:
        raise errors.InvalidArgumentError(
            f"{_tell(place)}: Data types don't match. The record has {found}, and "
            f"{wanted} was asked for."
        )
    count = len(layout.values(feature))
    raise errors.InvalidArgumentError(
        f"{_tell(place)}: Number of {found} values != expected. The record has "
        f"{count}, and shape {layout.shape} needs {layout.size}. Use VarLenFeature for "
        "a list of any length."
    )


def _name(dtype: np.dtype) -> str:
    return "string" if dtype.kind == "O" else str(dtype)


def read_fixed(layout: ValueLayout, feature: Any, place: Place) -> Any:
    """Returns an array of the layout's shape, or `bytes` for one text.

    Args:
        layout: how to read it.
        feature: the message; None if it is missing.
        place: where it stands.

    Raises:
        InvalidArgumentError: it is missing and has no default, or has another type or
            number of values.
    """
    values = _fixed_values(layout, feature, place)
    if layout.shape:
        return _to_array(values, layout.dtype).reshape(layout.shape)
    value = values[0]
    return value if type(value) is bytes else np.array(value, layout.dtype)


def _fixed_values(layout: ValueLayout, feature: Any, place: Place) -> Any:
    """Returns as many values as a layout has; the arguments are as above."""
    # This runs for every record. A message with another field has no values here.
    if feature is not None:
        values = layout.values(feature)
        if len(values) == layout.size and (values or feature.HasField(layout.field)):
            return values
    if layout.default is None or (feature is not None and feature.WhichOneof("kind")):
        refuse(layout, feature, place)
    return layout.default.reshape(-1)


def _to_array(values: Sequence[Any], dtype: np.dtype) -> np.ndarray:
    """Returns values as an array of one axis."""
    if dtype.kind != "O":
        return np.array(values, dtype)
    out = np.empty(len(values), object)
    out[:] = list(values)
    return out


def read_list(layout: ValueLayout, feature: Any, place: Place) -> np.ndarray:
    """Returns the steps of a feature of any length; none if it is missing.

    The arguments are those of `read_fixed`.

    Raises:
        InvalidArgumentError: it has another type, or values for a part of a step.
    """
    values: Sequence[Any] = ()
    if feature is not None:
        values = layout.values(feature)
        if not values and feature.WhichOneof("kind") not in (None, layout.field):
            refuse(layout, feature, place)
    steps = len(values) // layout.size if layout.size else 0
    if steps * layout.size != len(values):
        raise errors.InvalidArgumentError(
            f"{_tell(place)}: Number of {_name(layout.dtype)} values != expected. The "
            f"record has {len(values)}, which is no multiple of the {layout.size} that "
            f"shape {layout.shape} needs."
        )
    return _to_array(values, layout.dtype).reshape(steps, *layout.shape)


def stack_fixed(
    layout: ValueLayout, found: Sequence[Any], places: Iterable[Place]
) -> np.ndarray:
    """Returns a batch of features of fixed length.

    Args:
        layout: how to read them.
        found: the message of each record, or None.
        places: where each of them stands.

    Raises:
        InvalidArgumentError: as for `read_fixed`.
    """
    # Nearly all batches have all values; the slower way finds defaults and errors.
    rows = [] if None in found else list(map(layout.values, found))
    if not layout.size or {*map(len, rows)} != {layout.size}:
        rows = [_fixed_values(layout, *one) for one in zip(found, places, strict=True)]
    if layout.size == 1:
        flat = _to_array(list(map(_FIRST, rows)), layout.dtype)
        return flat.reshape(len(rows), *layout.shape)
    out = np.empty((len(rows), layout.size), layout.dtype)
    for row, values in zip(out, rows, strict=True):
        row[:] = _to_array(values, layout.dtype)
    return out.reshape(len(rows), *layout.shape)


def pad(
    rows: Sequence[np.ndarray], layout: ValueLayout, rank: int, place: Place
) -> np.ndarray:
    """Returns arrays as one batch, filled up to the longest.

    Args:
        rows: the arrays.
        layout: has their type and what fills them up.
        rank: the number of their axes that differ in size, the first ones.
        place: where the first of them stands.

    Raises:
        InvalidArgumentError: the batch would be far larger than its data.
    """
    longest = [
        max((row.shape[axis] for row in rows), default=0) for axis in range(rank)
    ]
    shape = (len(rows), *longest, *layout.shape)
    size = math.prod(shape)
    if size > max(_SMALL_BATCH, _MOST_FILLING * sum(row.size for row in rows)):
        raise errors.InvalidArgumentError(
            f"{place[0]}: feature {place[1]!r} would be filled up to shape "
            f"{shape}, since one list of the batch is far longer than the others. "
            "Leave such records out, or make the batch smaller."
        )
    out = elements.blank(shape, layout.dtype)
    if layout.default is not None:
        out[...] = layout.default
    for row, value in zip(out, rows, strict=True):
        row[tuple(map(slice, value.shape[:rank]))] = value
    return out


def check(
    asked: Mapping[str, AnyFeature] | None,
    kinds: tuple[type, ...],
    function: str,
) -> None:
    """Raises unless the features that were asked for are such that a function reads.

    Args:
        asked: the features, by name.
        kinds: the classes of features that the function reads.
        function: its name.

    Raises:
        TypeError: a name is no text.
        ValueError: there are none, or one is of another class.
    """
    if not asked:
        raise ValueError(
            f"Invalid argument: features of {function} cannot be "
            f"{'None' if asked is None else 'empty'}."
        )
    for key, feature in asked.items():
        if type(feature) not in kinds:
            names = ", ".join(kind.__name__ for kind in kinds)
            raise ValueError(
                f"Unsupported {type(feature).__name__} {feature!r} for key {key!r} of "
                f"{function}, which takes {names}."
            )
        if not isinstance(key, str):
            raise TypeError(f"The name of a feature must be text, received {key!r}.")
