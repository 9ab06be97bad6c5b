"""Converts columns of a Hugging Face table to arrays of the types that it declares.

The tables consist of Arrow arrays, which know their types, lengths and nulls. The
format "numpy" of `datasets` loses some of that: it makes numbers of nulls, and cuts
text at zero bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.plan import elements, loader_structures

# Errors that `_convert_column` raises again with another message. A subclass may take
# other arguments than a message, as UnicodeDecodeError does; it becomes a ValueError.
_RERAISED_TYPES = (TypeError, ValueError, errors.InvalidArgumentError)


def types(features: Any) -> dict[str, Any]:
    """Returns the Arrow type of each column, without those that `datasets` decodes."""
    kinds = {field.name: field.type for field in features.arrow_schema}
    return {name: kinds[name] for name in features if not _is_decoded(features[name])}


def row(given: object, kinds: Mapping[str, Any]) -> object:
    """Returns one example, made of Python values.

    Args:
        given: the example as `datasets` returns it.
        kinds: the Arrow types of the columns that have one.

    Raises:
        ValueError: a value is missing, or is no array.
    """
    if not isinstance(given, Mapping):
        return _convert_value(given)
    return {name: _value(v, repr(name), kinds.get(name)) for name, v in given.items()}


def _value(value: object, name: str, kind: object) -> object:
    """Returns one value of an example as an array, in its Arrow type if it has one."""
    if kind is None:
        return _convert_column(name, value, _convert_value)
    pyarrow = sys.modules["pyarrow"]  # `datasets` has loaded it.
    column = _convert_column(name, [value], lambda v: pyarrow.array(v, kind))
    return elements.map_leaves(lambda x: x[0], _array(column, name))


def batch(given: object) -> Any:
    """Returns several examples whose columns have types that only the values tell.

    Raises:
        ValueError: a value is no array.
        InvalidArgumentError: the examples have different shapes.
    """
    if not isinstance(given, Mapping):
        return _convert_value(given)
    return {
        name: _convert_column(repr(name), v, _convert_values)
        for name, v in given.items()
    }


def arrays(table: Any) -> dict[str, Any]:
    """Returns the rows of an Arrow table as one array per column.

    Raises:
        ValueError: a value is missing, or is no array.
        InvalidArgumentError: the rows have different shapes.
    """
    found = zip(table.column_names, table.columns, strict=True)
    return {name: _array(c.combine_chunks(), repr(name)) for name, c in found}


def spec(table: Any) -> dict[str, Any]:
    """Returns the specs of the rows of an Arrow table; the sizes of lists are None."""
    made: dict[str, Any] = elements.map_leaves(
        lambda x: specs.TensorSpec((None,) * (x.ndim - 1), x.dtype), arrays(table[:0])
    )
    return made


def _is_decoded(feature: object) -> bool:
    """Whether `datasets` decodes a feature when it is read, as it does images."""
    if isinstance(feature, Mapping):
        return any(map(_is_decoded, feature.values()))
    inner = (
        feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
    )
    if inner is not None:
        return _is_decoded(inner)
    return hasattr(feature, "decode_example") and getattr(feature, "decode", True)


class _UnequalLengthsError(Exception):
    """Raised for lists of different lengths, which make no array."""


def _array(column: Any, name: str, is_whole: bool = True) -> object:
    """Returns an Arrow column as one array, or as a dict of arrays.

    Args:
        column: the values.
        name: the name of the column, for errors.
        is_whole: whether each value is a row, and not a part of one.
    """
    # An extension type, such as `Array2D`, wraps an ordinary column.
    column = getattr(column, "storage", column)
    if column.null_count:
        raise ValueError(
            f"The column {name} has a row without a value (null), which no array can "
            "hold. Fill it with table.map, or leave such rows out with table.filter."
        )
    # Only arrays of lists have `value_lengths`, and only arrays of structs `field`.
    if hasattr(column, "value_lengths"):
        return _lists(column, name, is_whole)
    if hasattr(column, "field"):
        fields = zip(column.type, column.flatten(), strict=True)
        return {
            f.name: _array(part, f"{name}[{f.name!r}]", is_whole) for f, part in fields
        }
    found = column.to_numpy(zero_copy_only=False)
    if found.dtype.kind in "mM":  # Dates, which no device has.
        return _convert_column(name, column.to_pylist(), _convert_values)
    # A copy: the memory of Arrow's array is the table itself.
    return _convert_column(name, np.array(found), elements.convert)


def _lists(column: Any, name: str, is_whole: bool) -> object:
    """Returns a column of lists as one array."""
    sizes = set(column.value_lengths().to_pylist())
    try:
        if len(sizes) > 1:
            raise _UnequalLengthsError
        inner = _array(column.flatten(), name, False)
    except _UnequalLengthsError:
        if not is_whole:
            raise
        raise _uneven_error(column, name) from None
    size = sizes.pop() if sizes else 0
    return elements.map_leaves(
        lambda x: x.reshape(len(column), size, *x.shape[1:]), inner
    )


def _uneven_error(column: Any, name: str) -> Exception:
    """Returns the error for uneven lists: within a row, or from row to row."""
    shapes: set[tuple[int, ...]] = set()
    for index in range(len(column)):
        try:
            found = _lists(column.slice(index, 1), name, False)
        except _UnequalLengthsError:
            return ValueError(
                f"A row of the column {name} is no array: the lists in it have "
                "different lengths. Make them equal with table.map."
            )
        shapes.update(x.shape[1:] for x in elements.leaves(found))
    return errors.InvalidArgumentError(
        f"Cannot batch the column {name}, whose rows have different shapes: "
        f"{', '.join(map(str, sorted(shapes, key=str)))}. Use padded_batch, or make "
        "the shapes equal with map."
    )


def _convert_value(value: object) -> object:
    """Returns a value of a type that only the value tells, as an element."""
    return loader_structures.to_element(value)


def _convert_values(values: object) -> object:
    """Returns a column of a type that only the values tell."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":
        values = list(values)
    if isinstance(values, list):
        return elements.stack([_convert_value(v) for v in values])
    return _convert_value(values)


def _convert_column(name: str, value: object, convert: Callable[[Any], Any]) -> object:
    """Converts a value, and names the column in the error if that fails."""
    try:
        return convert(value)
    except (TypeError, ValueError) as e:
        kind = type(e) if type(e) in _RERAISED_TYPES else ValueError
        raise kind(f"In the column {name}: {e}") from e
