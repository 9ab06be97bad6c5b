"""Columns of a Hugging Face table as arrays, in the types that its features declare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.plan import elements, loader_structures

_NUMBERS = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
) | frozenset(("float16", "float32", "float64"))
_TEXTS = frozenset(
    ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
)

_NAMED = (TypeError, ValueError, errors.InvalidArgumentError)


def row(given: Any, features: Mapping[str, Any] | None) -> Any:
    """One example.

    Args:
        given: what the table has.
        features: those of the table; None if it has none, or a format of its own.

    Raises:
        ValueError: a value is missing, or no array.
    """
    if not isinstance(given, Mapping):
        return elements.convert(loader_structures.structured(given))
    made = {}
    for name, value in given.items():
        if features is None or name not in features:
            made[name] = _named(repr(name), value, _any_value)
        else:
            found = _column([value], features[name], repr(name))
            made[name] = elements.map_leaves(lambda x: x[0], found)
    return made


def batch(given: Any, features: Mapping[str, Any] | None) -> Any:
    """Several examples, of which the table has the columns.

    Raises:
        ValueError: a value is missing, or no array.
        InvalidArgumentError: the examples have different shapes.
    """
    if not isinstance(given, Mapping):
        return elements.convert(loader_structures.structured(given))
    made = {}
    for name, values in given.items():
        if features is None or name not in features:
            made[name] = _named(repr(name), values, _any_column)
        else:
            made[name] = _column(values, features[name], repr(name))
    return made


def spec(feature: Any) -> Any:
    """What the values of a column look like, as far as its feature tells."""
    if isinstance(feature, Mapping):
        return {name: spec(f) for name, f in feature.items()}
    shape: list[int | None] = []
    while (inner := _inner(feature)) is not None:
        length = getattr(feature, "length", -1)
        shape.append(None if length is None or length < 0 else length)
        feature = inner
    shape += getattr(feature, "shape", None) or ()
    if isinstance(feature, Mapping):
        return elements.map_leaves(
            lambda s: specs.TensorSpec((*shape, *s.shape), s.dtype), spec(feature)
        )
    name = getattr(feature, "dtype", None)
    return specs.TensorSpec(shape, np.dtype(name if name in _NUMBERS else object))


def may_vary(feature: Any) -> bool:
    """Whether the values of a column may have different shapes."""
    found = elements.leaves(spec(feature))
    return any(None in s.shape for s in found) or _type_of(feature) is None


def _inner(feature: Any) -> Any:
    """What a list holds; None if the feature is no list."""
    if isinstance(feature, list):
        return feature[0]
    return getattr(feature, "feature", None)


def _type_of(feature: Any) -> Any:
    """The element type of a column, an object type for text; None if it has none."""
    while (inner := _inner(feature)) is not None:
        feature = inner
    name = getattr(feature, "dtype", None)
    if name in _NUMBERS:
        return np.dtype(name)
    return np.dtype(object) if name in _TEXTS else None


def _column(values: list[Any], feature: Any, name: str) -> Any:
    """The values of some rows as one array, or as a dict of arrays."""
    if any(v is None for v in values):
        raise _missing(name)
    fields = feature if isinstance(feature, Mapping) else _inner(feature)
    if isinstance(fields, Mapping):
        return _fields(values, fields, name, fields is not feature)
    kind = _type_of(feature)
    if kind is None:
        return _named(name, values, _any_column)
    try:
        array = np.array(values, kind)
    except (TypeError, ValueError) as e:
        if _has_none(values):
            raise _missing(name) from None
        raise _uneven(values, kind, name) from e
    if kind.kind == "O":
        return _text(array, values, name)
    # NumPy makes a number of what is missing.
    is_doubtful = kind.kind == "b" or (kind.kind == "f" and np.isnan(array).any())
    if is_doubtful and _has_none(values):
        raise _missing(name)
    return array


def _fields(
    values: list[Any], fields: Mapping[str, Any], name: str, is_list: bool
) -> dict[str, Any]:
    """A column of structures, or of lists of them."""
    made = {}
    for key, feature in fields.items():
        if is_list and not any(isinstance(v, Mapping) for v in values):
            part = [[x[key] for x in v] for v in values]
        else:
            part = [v[key] for v in values]
        inner = [feature] if is_list else feature
        made[key] = _column(part, inner, f"{name}[{key!r}]")
    return made


def _text(array: np.ndarray, values: list[Any], name: str) -> Any:
    kinds = {type(x) for x in array.flat}
    if type(None) in kinds:
        raise _missing(name)
    if list in kinds:
        raise _uneven(values, array.dtype, name)
    return elements.convert(array)


def _has_none(x: Any) -> bool:
    return x is None or (isinstance(x, list) and any(map(_has_none, x)))


def _missing(name: str) -> ValueError:
    return ValueError(
        f"The column {name} has a row without a value (null), which no array can hold. "
        "Fill it with table.map, or leave such rows out with table.filter."
    )


def _uneven(values: list[Any], kind: np.dtype, name: str) -> Exception:
    shapes = [_shape(value, kind) for value in values]
    if None in shapes:
        return ValueError(
            f"A row of the column {name} is no array: the lists in it have different "
            "lengths. Make them equal with table.map."
        )
    return errors.InvalidArgumentError(
        f"Cannot batch the column {name}, whose rows have different shapes: "
        f"{', '.join(map(str, sorted(set(shapes), key=str)))}. Use padded_batch, or "
        "make the shapes equal with map."
    )


def _shape(value: Any, kind: np.dtype) -> tuple[int, ...] | None:
    try:
        array = np.array(value, kind)
    except (TypeError, ValueError):
        return None
    return None if any(isinstance(x, list) for x in array.flat) else array.shape


def _any_value(value: Any) -> Any:
    return elements.convert(loader_structures.structured(value))


def _any_column(values: Any) -> Any:
    """A column of a type that only the values tell."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":
        values = list(values)
    if isinstance(values, list):
        return elements.stack([_any_value(v) for v in values])
    return _any_value(values)


def _named(name: str, value: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert, and name the column in what that raises."""
    try:
        return convert(value)
    except (TypeError, ValueError) as e:
        kind = type(e) if type(e) in _NAMED else ValueError
        raise kind(f"In the column {name}: {e}") from e
