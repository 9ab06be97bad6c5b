"""Reads the values of features from messages, one record or a batch."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from unisono._src.foundation import errors
from unisono._src.input.plan import elements
from unisono._src.ops.records import features

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


def refuse(layout: features.ValueLayout, feature: Any, place: Place) -> NoReturn:
    """Raises the error for a feature that has no such values."""
    field = None if feature is None else feature.WhichOneof("kind")
    wanted = _name(layout.dtype)
    if field is None:
        raise errors.InvalidArgumentError(
            f"{_tell(place)} (data type: {wanted}) is required but could not be found. "
            "Give it a default_value if records may lack it."
        )
    found = _name(features.TYPES[field])
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


def read_fixed(layout: features.ValueLayout, feature: Any, place: Place) -> Any:
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


def _fixed_values(layout: features.ValueLayout, feature: Any, place: Place) -> Any:
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


def read_list(layout: features.ValueLayout, feature: Any, place: Place) -> np.ndarray:
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
    layout: features.ValueLayout, found: Sequence[Any], places: Iterable[Place]
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
    rows: Sequence[np.ndarray], layout: features.ValueLayout, rank: int, place: Place
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
    asked: Mapping[str, features.AnyFeature] | None,
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
